"""The roofline's arithmetic, and its page, downloads and script."""

from __future__ import annotations

import csv
import gzip
import io
import json
from dataclasses import replace
from math import isclose

import pytest
from django.test import Client

from runner.events import RunPayload, RunStatus
from runner.results import CaseResult, Ceiling, Evaluation, Verdict
from runner.wire import canonical, to_json
from tests.factories import (
    HOST,
    make_candidate,
    make_evaluation,
    make_event,
    make_run,
    make_timing,
    make_user,
)
from webapp.fleet.models import Device
from webapp.review.roofline import Measured, Roofline, Roofs
from webapp.runs.models import Run

DRAM = Ceiling("DRAM copy", "B/s", 40e9, "measured", "best of many")
CACHE = Ceiling("L2 copy", "B/s", 160e9, "measured", "best of many")
FMA = Ceiling("FP32 FMA", "FLOP/s", 400e9, "measured", "register only", "fp32")
MODEL = Ceiling("FP32 peak", "FLOP/s", 900e9, "modelled", "cores × clock", "fp32")
TENSOR = Ceiling("BF16 peak", "FLOP/s", 4e12, "datasheet", "dense", "bf16")
UNKNOWN = Ceiling("DRAM", "B/s", None, "datasheet", "the system names no memory type")
ALL = Roofs((DRAM, CACHE, FMA, MODEL, TENSOR, UNKNOWN))


def timed(
    flops: int, moved: int, median_us: float, case: str = "c", dtype: str = "fp32"
) -> CaseResult:
    timing = make_timing(2.0, baseline_us=2 * median_us)
    return CaseResult(
        case, Verdict.passed, dtype=dtype, flops=flops, bytes_moved=moved, timing=timing
    )


def evaluation(*cases: CaseResult) -> Evaluation:
    return replace(make_evaluation(), cases=cases)


def chart(*cases: CaseResult, roofs: Roofs = ALL, case: str = "") -> Roofline:
    return Roofline(roofs, [Measured(1, None, evaluation(*cases))], case)


def test_a_low_intensity_is_bound_by_memory() -> None:
    # 1 GFLOP over 2 GB in 0.1 s: 0.5 FLOP/B, 20 GB/s of 40.
    (point,) = chart(timed(10**9, 2 * 10**9, 1e5)).points
    assert (point.roof, point.intensity) == ("DRAM copy", 0.5)
    assert point.share is not None
    assert isclose(point.share, 0.5)
    assert isclose(point.bytes_per_s, 20e9)
    assert isclose(point.flops_per_s, 10e9)


def test_a_high_intensity_is_bound_by_the_measured_peak_not_the_modelled_one() -> None:
    (point,) = chart(timed(10**11, 10**9, 1e6)).points
    assert point.roof == "FP32 FMA"
    assert point.share is not None
    assert isclose(point.share, 0.25)


def test_the_peak_is_that_of_the_cases_data_type() -> None:
    (point,) = chart(timed(10**12, 10**9, 1e6, dtype="bf16")).points
    assert point.roof == "BF16 peak"


def test_the_ridge_lies_where_both_roofs_bind_alike() -> None:
    (ridge,) = chart(timed(10**9, 10**9, 1e5)).ridges
    assert (ridge.memory, ridge.compute, ridge.intensity) == ("DRAM copy", "FP32 FMA", 10.0)
    assert ridge.flops_per_s == DRAM.value * ridge.intensity  # type: ignore[operator]


def test_a_share_beyond_the_roof_is_kept_and_the_cache_named() -> None:
    (point,) = chart(timed(10**9, 2 * 10**9, 25_000)).points  # 80 GB/s
    assert point.share is not None
    assert isclose(point.share, 2.0)
    assert point.above == "50% of L2 copy: part of the data stayed in cache"


def test_a_rate_above_every_roof_asks_to_be_explained() -> None:
    (point,) = chart(timed(10**9, 2 * 10**9, 1_000)).points
    assert "before it is believed" in point.above


def test_a_candidate_that_was_not_timed_has_no_point() -> None:
    untimed = replace(timed(10**9, 10**9, 1e5), timing=None)
    unscored = replace(timed(10**9, 10**9, 1e5, case="odd"), scored=False)
    failed = replace(make_evaluation("wrong_values"))
    assert chart(untimed).points == []
    assert chart(timed(10**9, 10**9, 1e5), unscored).cases == ["c"]
    assert Roofline(ALL, [Measured(1, None, failed)]).points == []


def test_a_case_without_counted_work_is_named_not_drawn() -> None:
    line = chart(timed(0, 10**9, 1e5, case="free"), timed(10**9, 10**9, 1e5))
    assert [point.case for point in line.points] == ["c"]
    assert line.without_point == ["free"]


def test_no_roof_means_no_share_and_points_all_the_same() -> None:
    line = chart(timed(10**9, 10**9, 1e5), roofs=Roofs((), "nothing measured"))
    (point,) = line.points
    assert (point.roof, point.share, point.above) == (None, None, "")
    assert (line.ridges, line.lines, line.impossible) == ([], [], None)


def test_a_roof_without_a_value_is_missing_not_zero() -> None:
    line = chart(timed(10**9, 10**9, 1e5))
    assert line.roofs.missing == (UNKNOWN,)
    assert all(drawn.roof.value for drawn in line.lines)


def test_slopes_end_at_the_highest_peak_and_the_domain_holds_everything() -> None:
    line = chart(timed(10**9, 2 * 10**9, 1e5))
    left, right, bottom, top = line.domain
    for point in line.points:
        assert left < point.intensity < right
        assert bottom < point.flops_per_s < top
    for drawn in (one for one in line.lines if one.shown):
        assert left <= drawn.x[0] < drawn.x[1] <= right
        assert max(drawn.y) < top
    (dram,) = (drawn for drawn in line.lines if drawn.roof is DRAM)
    assert dram.x[1] == 900e9 / 40e9
    assert dram.binding


def test_roofs_of_other_data_types_are_drawn_only_on_demand() -> None:
    shown = {drawn.roof.name: drawn.shown for drawn in chart(timed(10**9, 10**9, 1e5)).lines}
    assert shown["BF16 peak"] is False
    assert shown["FP32 FMA"] is True


def test_the_impossible_begins_above_measured_roofs_whatever_a_model_says() -> None:
    outline = chart(timed(10**9, 10**9, 1e5)).impossible
    assert outline is not None
    assert outline[1][1] == FMA.value


def test_candidates_are_ranked_by_speedup() -> None:
    slow, fast = make_evaluation(speedup=1.1), make_evaluation(speedup=3.0)
    line = Roofline(ALL, [Measured(1, None, slow), Measured(2, 1, fast)])
    assert [(point.candidate, point.rank) for point in line.points] == [(2, 1), (1, 2)]
    assert [point.candidate for point in line.best] == [2]


def test_one_case_can_be_looked_at_alone() -> None:
    cases = timed(10**9, 10**9, 1e5, case="a"), timed(10**9, 10**9, 1e5, case="b")
    line = chart(*cases, case="b")
    assert [point.case for point in line.points] == ["b"]
    assert line.cases == ["a", "b"]


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


def serve_host() -> None:
    Device.objects.create(
        name="host",
        kind="host",
        info_text=canonical(to_json(HOST)),
        ceilings_text=canonical(to_json((DRAM, FMA, UNKNOWN))),
    )


@pytest.mark.django_db
def test_the_page_says_how_near_the_best_is_and_which_roof_is_missing(alice: Client) -> None:
    serve_host()
    run = make_run("finished", candidates=3)
    page = alice.get(f"/runs/{run.pk}/roofline/").content.decode()
    assert "How near is the best, c3?" in page
    assert "of DRAM copy" in page
    assert "the system names no memory type" in page
    assert f"/runs/{run.pk}/c/3/" in page


@pytest.mark.django_db
def test_a_run_of_another_device_is_not_put_under_our_roofs(alice: Client) -> None:
    serve_host()
    run = make_run("finished")
    elsewhere = replace(HOST, model="Other CPU", uuid="host-other")
    make_candidate(run, evaluation=replace(make_evaluation(), device=elsewhere))
    page = alice.get(f"/runs/{run.pk}/roofline/").content.decode()
    assert "No ceilings measured for this device: for Other CPU (host)" in page
    assert "DRAM copy" not in page


@pytest.mark.django_db
def test_an_imported_run_brings_its_roofs_in_its_log(alice: Client) -> None:
    run = make_run("running", candidates=1)
    make_event(run, RunPayload(RunStatus.finished, "done", ceilings=(CACHE, FMA)))
    Run.objects.filter(pk=run.pk).update(imported=True)
    page = alice.get(f"/runs/{run.pk}/roofline/").content.decode()
    assert "as this run&#x27;s log holds them" in page
    assert "of L2 copy" in page


@pytest.mark.django_db
def test_a_run_without_points_says_so(alice: Client) -> None:
    serve_host()
    failed = make_run("finished")
    make_candidate(failed, "crashed")
    page = alice.get(f"/runs/{failed.pk}/roofline/").content.decode()
    assert "No candidate of this run passed and was timed" in page
    queued = alice.get(f"/runs/{make_run('queued').pk}/roofline/")
    assert "A candidate has a point once it passed" in queued.content.decode()


@pytest.mark.django_db
def test_the_downloads_hold_the_points_of_the_page(alice: Client) -> None:
    serve_host()
    run = make_run("finished", candidates=2)
    document = json.loads(alice.get(f"/runs/{run.pk}/roofline/?format=json").content)
    assert document["run"] == run.uuid
    assert [point["candidate"] for point in document["points"]] == [2, 1]
    assert document["roofs"][2]["value"] is None
    rows = list(
        csv.DictReader(
            io.StringIO(alice.get(f"/runs/{run.pk}/roofline/?format=csv").content.decode())
        )
    )
    assert [row["candidate"] for row in rows] == ["2", "1"]
    assert float(rows[0]["share"]) == document["points"][0]["share"]


@pytest.mark.django_db
def test_a_name_from_an_archive_is_no_formula_and_no_markup(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, evaluation=make_evaluation(case="=HYPERLINK(1)</script><b>"))
    sheet = alice.get(f"/runs/{run.pk}/roofline/?format=csv").content.decode()
    assert "'=HYPERLINK" in sheet
    page = alice.get(f"/runs/{run.pk}/roofline/").content.decode()
    assert "</script><b>" not in page


@pytest.mark.django_db
def test_the_number_of_queries_does_not_grow_with_candidates(
    alice: Client, django_assert_max_num_queries: object
) -> None:
    serve_host()
    run = make_run("finished", candidates=40)
    with django_assert_max_num_queries(8):  # type: ignore[operator]
        alice.get(f"/runs/{run.pk}/roofline/")


@pytest.mark.django_db
def test_the_chart_library_comes_from_the_installed_package_and_may_be_kept(alice: Client) -> None:
    run = make_run("finished", candidates=1)
    page = alice.get(f"/runs/{run.pk}/roofline/").content.decode()
    address = page[page.index("/vendor/plotly-") :].split('"')[0]
    response = alice.get(address, headers={"Accept-Encoding": "gzip"})
    assert "immutable" in response["Cache-Control"]
    assert b"plotly.js" in gzip.decompress(response.content)[:400]
    assert alice.get("/vendor/plotly-0.0.1.min.js").status_code == 404
