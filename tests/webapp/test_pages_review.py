"""Candidate and compare pages: every verdict, hostile text, honest ratios, a bounded cost."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runner.results import Verdict
from tests.factories import HOST, make_candidate, make_evaluation, make_run, make_user
from webapp.review.compare import Comparison, Sides
from webapp.runs import store
from webapp.runs.models import Candidate, Run

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"
SOURCE = """#include <cstdint>
constexpr int UNROLL = 1;
constexpr int STREAM = 0;
void softmax();
"""


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


def page_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    return response.content.decode()


def plain(page: str) -> str:
    """What a reader sees: no tags, blanks joined."""
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def pair(run: Run) -> tuple[Candidate, Candidate]:
    first = make_candidate(run, speedup=1.5, source=SOURCE, constants={"UNROLL": 1, "STREAM": 0})
    changed = SOURCE.replace("UNROLL = 1", "UNROLL = 4")
    second = make_candidate(
        run, speedup=3.0, source=changed, parent=1, constants={"UNROLL": 4, "STREAM": 0}
    )
    return first, second


def comparison(a: Candidate, b: Candidate) -> Comparison:
    return Comparison(a, b)


def test_the_pages_are_for_those_who_signed_in(client: Client) -> None:
    run = make_run("finished", candidates=1)
    sha256 = run.candidates.get().source_sha256
    addresses = ("c/1/", "c/1/source/", "roofline/")
    for address in [f"/runs/{run.pk}/{a}" for a in addresses] + [
        "/compare/",
        f"/artifacts/{sha256}/",
    ]:
        assert client.get(address)["Location"].startswith("/sign-in/")


@pytest.mark.parametrize("verdict", [v for v in Verdict if v is not Verdict.passed])
def test_a_candidate_without_a_speedup_says_why(alice: Client, verdict: Verdict) -> None:
    run = make_run("finished")
    make_candidate(run, verdict, evaluation=make_evaluation(verdict, reason="row 3 is off"))
    page = plain(page_of(alice, f"/runs/{run.pk}/c/1/"))
    assert "row 3 is off" in page
    assert "No speedup: a number is given only when every case passes." in page
    assert "Promote" not in page


def test_a_passing_candidate_says_how_much_faster_than_what(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, speedup=2.0)
    page = plain(page_of(alice, f"/runs/{run.pk}/c/1/"))
    assert "2.00× over torch on Test CPU ▲ faster" in page
    assert "95% interval 1.96–2.04×" in page
    assert "Integrity ✓ 1 passed" in page
    assert "perf_counter_ns around the call" in page
    assert "torch 2.13.0" in page


def test_a_candidate_that_passed_without_a_time_has_no_speedup(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, evaluation=make_evaluation(speedup=None))
    page = plain(page_of(alice, f"/runs/{run.pk}/c/1/"))
    assert "No scored case was timed, so there is no speedup." in page
    assert "1.00×" not in page


@pytest.mark.parametrize(
    ("status", "said"),
    [("running", "Waiting for its evaluation."), ("stopped", "ended before this candidate")],
)
def test_an_unevaluated_candidate_says_what_it_waits_for(
    alice: Client, status: str, said: str
) -> None:
    run = make_run("running")
    make_candidate(run, None)
    Run.objects.filter(pk=run.pk).update(status=status)
    assert said in plain(page_of(alice, f"/runs/{run.pk}/c/1/"))


def test_changed_constants_stand_beside_their_values_in_the_parent(alice: Client) -> None:
    run = make_run("finished")
    pair(run)
    page = page_of(alice, f"/runs/{run.pk}/c/2/")
    assert "changed: UNROLL 4 1" in plain(page)
    assert "changed: STREAM" not in plain(page)


def test_lineage_shows_ancestors_and_children(alice: Client) -> None:
    run = make_run("finished")
    pair(run)
    make_candidate(run, "crashed", parent=2)
    page = page_of(alice, f"/runs/{run.pk}/c/2/")
    kin = re.findall(r'class="kin[^"]*" href="([^"]+)"', page)
    assert kin == [f"/runs/{run.pk}/c/{number}/" for number in (1, 2, 3)]


def test_a_parent_that_is_not_in_the_log_is_a_ghost(alice: Client) -> None:
    run = make_run("finished")
    first, _ = pair(run)
    first.delete()
    page = plain(page_of(alice, f"/runs/{run.pk}/c/2/"))
    assert "c1 named as parent, but not in this run's log" in page


def test_hostile_words_stay_words(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, speedup=1.1, source=f"// {SCRIPT} \u202e\x1b\n", idea=f"{SCRIPT}\u202e")
    make_candidate(run, "crashed", parent=1, source=SCRIPT, evaluation=hostile())
    for address in (
        f"/runs/{run.pk}/c/1/",
        f"/runs/{run.pk}/c/2/",
        f"/compare/?a={run.pk}.1&b={run.pk}.2",
    ):
        page = page_of(alice, address)
        assert SCRIPT not in page
        assert "\u202e" not in page
        assert "\x1b" not in page
        assert "alert(1)" in page


def hostile() -> object:
    found = make_evaluation("crashed", reason=SCRIPT)
    return replace(found, output=f"{SCRIPT}\x1b[31m\u202e", compile_output=SCRIPT, isolation=SCRIPT)


def test_a_source_of_a_megabyte_is_shown_in_part_and_says_so(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, source="x" * 1_000_000)
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    assert len(page) < 500_000
    assert "977 KiB" in plain(page)
    assert "the download has all of it" in page


def test_the_download_is_the_source_byte_for_byte_and_never_a_page(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, source=f"{SCRIPT}\n")
    response = alice.get(f"/runs/{run.pk}/c/1/source/")
    assert response.content == f"{SCRIPT}\n".encode()
    assert response["Content-Type"].startswith("text/plain")
    assert response["Content-Disposition"] == f'attachment; filename="softmax-run{run.pk}-c1.cpp"'
    assert response["X-Content-Type-Options"] == "nosniff"


def test_an_artifact_that_is_gone_is_said_and_not_an_error(alice: Client) -> None:
    run = make_run("finished")
    row = make_candidate(run)
    store.path(row.source_sha256).unlink()
    assert "The source is not here" in page_of(alice, f"/runs/{run.pk}/c/1/")
    assert alice.get(f"/runs/{run.pk}/c/1/source/").status_code == 404
    assert alice.get("/artifacts/..%2f..%2fsecret_key/").status_code == 404


def test_a_number_of_another_source_is_called_out(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, source=SOURCE)
    assert "judged another source" not in page_of(alice, f"/runs/{run.pk}/c/1/")
    make_candidate(run, source=SOURCE, evaluation=make_evaluation(source="something else"))
    assert "judged another source" in page_of(alice, f"/runs/{run.pk}/c/2/")


@pytest.mark.parametrize(
    ("output", "link"),
    [
        ("candidate.cpp:3:5: error: x", '<a href="#L3">candidate.cpp:3</a>:5: error: x'),
        ('File "candidate.py", line 12, in run', '<a href="#L12">candidate.py&quot;, line 12</a>'),
    ],
)
def test_compiler_messages_lead_to_their_line(alice: Client, output: str, link: str) -> None:
    run = make_run("finished")
    found = replace(make_evaluation("compile_error"), compile_output=f"{SCRIPT}\n{output}\n")
    make_candidate(run, "compile_error", evaluation=found)
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    assert link in page
    assert SCRIPT not in page


def test_neighbours_are_one_key_away(alice: Client) -> None:
    run = make_run("finished", candidates=3)
    page = page_of(alice, f"/runs/{run.pk}/c/2/")
    assert f'rel="prev" data-previous href="/runs/{run.pk}/c/1/"' in page
    assert f'rel="next" data-next href="/runs/{run.pk}/c/3/"' in page
    assert 'rel="prev"' not in page_of(alice, f"/runs/{run.pk}/c/1/")


def test_every_line_of_the_source_has_an_address(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, source=SOURCE)
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    assert re.findall(r'id="(L\d+)"', page) == ["L1", "L2", "L3", "L4"]


@pytest.mark.parametrize("address", ["/runs/{run}/c/2/", "/compare/?a={run}.1&b={run}.2"])
def test_queries_do_not_grow_with_candidates(alice: Client, address: str) -> None:
    counts = []
    for extra in (2, 30):
        run = make_run("finished")
        pair(run)
        for _ in range(extra):
            make_candidate(run, parent=2)
        with CaptureQueriesContext(connection) as queries:
            page_of(alice, address.format(run=run.pk))
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[1] <= 16


def test_the_ratio_divides_the_two_speedups_and_takes_the_far_ends() -> None:
    a, b = pair(make_run("finished"))
    ratio = comparison(a, b).ratio
    assert ratio is not None
    assert ratio.value == pytest.approx(2.0)
    assert ratio.low == pytest.approx(3.0 * 0.98 / (1.5 * 1.02))
    assert ratio.high == pytest.approx(3.0 * 1.02 / (1.5 * 0.98))
    assert ratio.outcome == "faster"


def test_overlapping_intervals_cannot_be_told_apart() -> None:
    run = make_run("finished")
    a, b = make_candidate(run, speedup=2.0), make_candidate(run, speedup=2.05)
    ratio = comparison(a, b).ratio
    assert ratio is not None
    assert ratio.outcome == "indistinguishable"


def test_a_ratio_is_always_said_to_be_indirect(alice: Client) -> None:
    run = make_run("finished")
    pair(run)
    page = plain(page_of(alice, f"/compare/?a={run.pk}.1&b={run.pk}.2"))
    assert "▲ faster 2.00×" in page
    assert "indirect: not measured in one lease" in page
    assert "from different runs" not in page


def test_candidates_of_two_runs_are_compared_with_a_warning(alice: Client) -> None:
    one, two = make_run("finished", candidates=1), make_run("finished", candidates=2)
    page = plain(page_of(alice, f"/compare/?a={one.pk}.1&b={two.pk}.2"))
    assert "not measured in one lease, from different runs" in page


def test_there_is_no_ratio_across_devices_problems_or_baselines() -> None:
    run, other = make_run("finished"), make_run("finished", problem="rmsnorm")
    here = make_candidate(run)
    moved = replace(make_evaluation(), device=replace(HOST, uuid="host-other"))
    elsewhere = make_candidate(run, evaluation=moved)
    another_case = make_candidate(run, evaluation=make_evaluation(case="1x1-fp32"))
    failed = make_candidate(run, "crashed")
    said = {
        "devices": comparison(here, elsewhere).why_no_ratio,
        "cases": comparison(here, another_case).why_no_ratio,
        "problems": comparison(here, make_candidate(other)).why_no_ratio,
        "not timed": comparison(here, failed).why_no_ratio,
    }
    assert all(word in reason for word, reason in said.items())
    assert comparison(here, elsewhere).ratio is None


def test_what_differs_between_the_measurements_is_listed() -> None:
    run = make_run("finished")
    older = replace(make_evaluation(), versions={"torch": "2.11.0", "python": "3.11.7"})
    rows = comparison(make_candidate(run, evaluation=older), make_candidate(run)).differences
    assert [(row.name, row.a, row.b) for row in rows] == [("torch", "2.11.0", "2.13.0")]


@pytest.mark.parametrize("view", ["split", "unified"])
def test_the_diff_marks_the_changed_word_and_numbers_the_change(alice: Client, view: str) -> None:
    run = make_run("finished")
    pair(run)
    page = page_of(alice, f"/compare/?a={run.pk}.1&b={run.pk}.2&view={view}")
    assert 'id="change-1"' in page
    assert re.search(r'class="tk-n w-del">1</span>', page)
    assert re.search(r'class="tk-n w-add">4</span>', page)
    assert 'href="#B2"' in page


def test_long_unchanged_stretches_open_without_javascript(alice: Client) -> None:
    run = make_run("finished")
    body = "".join(f"int a{n};\n" for n in range(60))
    make_candidate(run, source=body + "int last = 1;\n")
    make_candidate(run, source=body + "int last = 2;\n", parent=1)
    page = page_of(alice, f"/compare/?a={run.pk}.1&b={run.pk}.2")
    assert '<details class="unchanged"><summary>show 56 unchanged lines</summary>' in page


def test_blanks_can_be_ignored_and_the_address_says_so(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, source="int a = 1;\n")
    make_candidate(run, source="int  a  =  1;\n", parent=1)
    address = f"/compare/?a={run.pk}.1&b={run.pk}.2"
    assert 'id="change-1"' in page_of(alice, address)
    ignored = page_of(alice, f"{address}&w=1")
    assert "They differ in blanks alone" in ignored
    assert f"?a={run.pk}.2&amp;b={run.pk}.1&amp;view=split&amp;w=1" in ignored


def test_equal_sources_are_said_to_be_equal(alice: Client) -> None:
    run = make_run("finished")
    make_candidate(run, source=SOURCE)
    make_candidate(run, source=SOURCE, parent=1)
    page = page_of(alice, f"/compare/?a={run.pk}.1&b={run.pk}.2")
    assert "the same, byte for byte" in page


@pytest.mark.parametrize("asked", ["9.9", "x", "1", "1.1.1", "1.99999999999"])
def test_an_address_of_no_candidate_is_named_with_its_remedy(alice: Client, asked: str) -> None:
    run = make_run("finished", candidates=2)
    page = plain(page_of(alice, f"/compare/?a={asked}&b={run.pk}.1", 404))
    assert f"a: &#x27;{asked}&#x27; names no candidate. Choose one below" in page


def test_sides_that_are_not_named_are_chosen_sensibly() -> None:
    run = make_run("finished", candidates=3)
    latest = Sides.of("", "")
    assert (latest.a, latest.b) == (run.candidates.get(number=1), run.candidates.get(number=3))
    assert Sides.of("", f"{run.pk}.2").a == run.candidates.get(number=1)
    assert Sides.of(f"{run.pk}.2", "").b == run.candidates.get(number=3)


def test_nothing_to_compare_yet_teaches(alice: Client) -> None:
    assert "Nothing to compare yet" in page_of(alice, "/compare/")
    make_run("finished", candidates=1)
    assert 'name="a"' in page_of(alice, "/compare/")
