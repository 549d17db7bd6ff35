"""What stands beside a number on every page: its checks, its isolation, its launch, its origin."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.test import Client

from runner.integrity import MEANINGS
from runner.results import CheckStatus, DeviceInfo, Evaluation, IntegrityCheck
from tests.factories import HOST, make_candidate, make_evaluation, make_run, make_user
from webapp.runs.models import Event
from webapp.runs.provenance import NOT_RECORDED, facts, further_details
from webapp.runs.rendering import render_event
from webapp.runs.templatetags.formats import CHIPS

CHECKS = (
    IntegrityCheck("source_hash", True, "built from this source"),
    IntegrityCheck.not_judged("physics", "no roof of this device is measured"),
    IntegrityCheck("inputs_unchanged", False, "x changed at [3, 7]"),
)
WARNING = "numbers from here are not evidence"
GPU = DeviceInfo(
    "cuda:0",
    "cuda",
    "NVIDIA H200",
    "GPU-1234",
    {
        "SM clock": "1980 MHz",
        "SM clock after": "1965 MHz",
        "temperature": "31",
        "temperature after": "44",
        "power": "109 W",
        "power after": "109 W",
        "driver": "570.0",
    },
)


@pytest.fixture
def alice(client: Client, db: None) -> Client:
    client.force_login(make_user("alice"))
    return client


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def shown(client: Client, found: Evaluation) -> dict[str, str]:
    """What a reader sees of the second candidate of a run: its page, its step, the comparison."""
    run = make_run("finished")
    make_candidate(run, speedup=1.5)
    row = make_candidate(run, evaluation=found, parent=1)
    pages = {
        "candidate": client.get(f"/runs/{run.pk}/c/2/").content.decode(),
        "compare": client.get(f"/compare/?a={run.pk}.1&b={run.pk}.2").content.decode(),
        "step": render_event(Event.objects.get(run=run, seq=row.evaluation_seq)),
        "run": client.get(f"/runs/{run.pk}/").content.decode(),
    }
    return {name: plain(page) for name, page in pages.items()}


@pytest.mark.parametrize("page", ["candidate", "step"])
def test_every_check_is_shown_with_what_it_means_what_was_seen_and_how_it_ended(
    alice: Client, page: str
) -> None:
    text = shown(alice, replace(make_evaluation(speedup=3.0), integrity=CHECKS))[page]
    assert "✕ 1 failed · ○ 1 not judged · ✓ 1 passed" in text
    ended = {"source_hash": "✓ passed", "physics": "○ not judged", "inputs_unchanged": "✕ failed"}
    for check in CHECKS:
        meaning = MEANINGS[check.check]
        said = f"{meaning.title} {meaning.meaning} {check.detail} {ended[check.check]}"
        assert said in text
    assert "Not part of this evaluation: Fresh inputs" in text


def test_the_gravest_check_comes_first(alice: Client) -> None:
    text = shown(alice, replace(make_evaluation(speedup=3.0), integrity=CHECKS))["candidate"]
    places = [text.index(MEANINGS[check.check].title + " ") for check in reversed(CHECKS)]
    assert places == sorted(places)


def test_an_evaluation_that_ended_before_any_check_says_so(alice: Client) -> None:
    text = shown(alice, replace(make_evaluation("compile_error"), integrity=()))["candidate"]
    assert "No check was made: the evaluation ended before." in text


@pytest.mark.parametrize("page", ["candidate", "compare", "step", "run"])
def test_a_number_without_isolation_is_called_no_evidence(alice: Client, page: str) -> None:
    found = replace(make_evaluation(speedup=3.0), isolation="none: bwrap is not installed")
    text = shown(alice, found)[page]
    assert WARNING in text
    assert "bwrap is not installed" in text
    assert ("c2 was not isolated" in text) is (page == "compare")


def test_isolated_numbers_carry_no_warning(alice: Client) -> None:
    assert all(WARNING not in text for text in shown(alice, make_evaluation(speedup=3.0)).values())


def with_launch(launch_us: float) -> Evaluation:
    found = make_evaluation(speedup=100.0)  # 10 µs on the device
    scored = found.cases[0]
    assert scored.timing is not None
    timing = replace(scored.timing, launch_us=launch_us, baseline_launch_us=6.0)
    return replace(found, cases=(replace(scored, timing=timing), found.cases[1]))


@pytest.mark.parametrize("page", ["candidate", "compare", "step"])
@pytest.mark.parametrize(("launch_us", "bound"), [(25.0, True), (4.0, False)])
def test_a_launch_is_shown_apart_and_called_a_bound_when_it_takes_longer(
    alice: Client, page: str, launch_us: float, bound: bool
) -> None:
    text = shown(alice, with_launch(launch_us))[page]
    assert f"launch {launch_us:.1f}" in text or f"launch {launch_us:.2f}" in text
    assert ("launch-bound" in text) is bound


def test_no_launch_is_shown_where_it_is_the_call_itself(alice: Client) -> None:
    texts = shown(alice, make_evaluation(speedup=3.0))
    assert "launch" not in texts["candidate"] + texts["compare"] + texts["step"]


def values(found: Evaluation) -> dict[str, str]:
    return {fact.name: fact.value for fact in facts(found)}


def test_provenance_tells_the_device_before_and_after() -> None:
    timer = "CUDA events around one call, L2 flushed before it"
    told = values(replace(make_evaluation(), device=GPU, timer=timer))
    assert told["uuid"] == "GPU-1234"
    assert told["SM clock"] == "1980 MHz → 1965 MHz"
    assert told["temperature"] == "31 → 44"
    assert told["power"] == "109 W, before and after"
    assert told["caches"] == "cold"
    assert told["pairs"].startswith("30 per case")
    assert [fact.name for fact in further_details(GPU)] == ["driver"]


def test_what_an_old_record_does_not_hold_is_named_and_not_left_out(alice: Client) -> None:
    found = replace(make_evaluation(), device=replace(GPU, details={}), timer="", isolation="")
    told = values(found)
    for name in ("SM clock", "power", "temperature", "timer", "caches", "isolation"):
        assert told[name] == NOT_RECORDED
    assert f"temperature {NOT_RECORDED}" in shown(alice, found)["candidate"]


def test_pairs_are_told_per_case_where_they_differ() -> None:
    found = make_evaluation()
    scored = found.cases[0]
    assert scored.timing is not None
    fewer = replace(scored, case="small", timing=replace(scored.timing, samples=12))
    told = values(replace(found, cases=(*found.cases, fewer)))
    assert told["pairs"] == "4096x2048-fp32: 30, small: 12"
    assert values(make_evaluation("crashed"))["pairs"] == "not timed"


def test_evidence_of_a_hostile_candidate_stays_words(alice: Client) -> None:
    script = "<script>alert(1)</script>"
    check = IntegrityCheck("<b>odd</b>", False, script)
    device = replace(HOST, details={script: script}, uuid=script)
    found = replace(make_evaluation(speedup=3.0), integrity=(check,), device=device)
    run = make_run("finished")
    make_candidate(run, evaluation=replace(found, isolation=f"none: {script}"))
    page = alice.get(f"/runs/{run.pk}/c/1/").content.decode()
    assert script not in page
    assert "<b>odd</b>" not in page


def test_the_statuses_of_a_check_are_all_drawn() -> None:
    assert {status.value for status in CheckStatus} <= CHIPS.keys()
