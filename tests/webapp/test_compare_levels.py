"""The compare page's levels and resources: held against each other only where that is fair."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runner.analysis import stored
from runner.analysis.levels import Level, Levels
from runner.events import AnalysisPayload
from tests.factories import make_candidate, make_run, make_user
from tests.webapp.analysed import (
    FEWER_WARPS,
    ROWS,
    TILE,
    add_analysis,
    add_candidate,
    analysed,
    payload_of,
    renamed,
    report_of,
)
from webapp.runs import store
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


@pytest.fixture
def run() -> Run:
    return make_run("running", language="triton")


def page_of(client: Client, run: Run, more: str = "", status: int = 200) -> str:
    response = client.get(f"/compare/?a={run.pk}.1&b={run.pk}.2{more}")
    assert response.status_code == status
    return response.content.decode()


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def with_text(run: Run, text: str, kernel: str = "k", lines: dict[int, int] | None = None) -> None:
    """A candidate whose PTX is this text."""
    row = add_candidate(run, TILE)
    levels = Levels(kernel, "sm_90", (Level("ptx", text, lines or {}),))
    payload = AnalysisPayload(row.number, "clean", target="sm_90", case="c")
    add_analysis(run, payload, stored.pack([levels]))


def test_the_head_says_what_changed_of_the_kernel(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    page = plain(page_of(alice, run))
    assert "sm_90: registers 64 → " in page
    assert "threads 512 → 256" in page
    assert "threads 512 256" in page  # the table in the margin
    assert "instruction mix:" in page


def test_what_is_known_to_be_worse_is_said_with_word_and_icon(alice: Client, run: Run) -> None:
    report = report_of(TILE)
    [kernel] = report.analysis.resources["kernels"]
    for spilled in (0, 64):
        row = add_candidate(run, TILE)
        resources = {"kernels": [{**kernel, "spill_load_bytes": spilled}]}
        add_analysis(run, replace(payload_of(row.number, report), resources=resources))
    assert "spills 0 B → 64 B ▼ worse" in plain(page_of(alice, run))
    swapped = alice.get(f"/compare/?a={run.pk}.2&b={run.pk}.1").content.decode()
    assert "spills 64 B → 0 B ▲ better" in plain(swapped)


def test_the_same_kernel_twice_is_said_to_be_the_same(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    analysed(run, TILE)
    assert "registers, memory and code as before" in plain(page_of(alice, run))
    assert "The TTGIR is the same on both sides" in plain(page_of(alice, run, "&tab=ttgir"))
    sass = plain(page_of(alice, run, "&tab=sass"))
    assert "Choice of registers and order of instructions aside." in sass


@pytest.mark.parametrize("view", ["split", "unified"])
@pytest.mark.parametrize("tab", ["ttgir", "ptx", "sass", "ttir", "llir"])
def test_every_level_is_a_tab_with_its_changes_under_their_source_line(
    alice: Client, run: Run, tab: str, view: str
) -> None:
    analysed(run, TILE)
    shorter = TILE.replace("e = tl.where(mask, e, 0.0)", "e = tl.where(mask, e, 1.0)")
    analysed(run, shorter)
    page = page_of(alice, run, f"&tab={tab}&view={view}")
    assert re.search(r"tab=" + tab + r'" aria-current="true"', page)
    assert 'id="change-1"' in page
    head = page.index("group-head", 0, page.index('id="change-1"'))
    assert "#L36" in page[head : page.index('id="change-1"')]


def test_tabs_keep_the_sides_and_the_view_and_the_other_way_round(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    page = page_of(alice, run, "&tab=ptx&view=unified&kernel=softmax_short_rows")
    address = f"?a={run.pk}.1&amp;b={run.pk}.2&amp;view=unified"
    for tab in ("ttgir", "ptx", "sass", "ttir", "llir"):
        assert f'href="{address}&amp;tab={tab}"' in page
    swapped = f"?a={run.pk}.2&amp;b={run.pk}.1&amp;view=unified&amp;tab=ptx"
    assert f"{swapped}&amp;kernel=softmax_short_rows" in page


def test_a_tab_that_is_not_there_is_the_source(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    assert 'aria-label="Source difference"' in page_of(alice, run, f"&tab={SCRIPT}")


def test_analyses_for_different_targets_are_not_held_against_each_other(
    alice: Client, run: Run
) -> None:
    analysed(run, TILE, target="sm_80")
    analysed(run, FEWER_WARPS)
    page = plain(page_of(alice, run, "&tab=ptx"))
    why = "c1 was analysed for sm_80 on 8192x16384-bf16, c2 for sm_90 on 8192x16384-bf16."
    assert f"No comparison of registers and memory: {why}" in page
    assert f"{why} Some of what differs may be due to that." in page
    assert "threads 512 → 256" not in page


def test_of_several_analyses_those_that_agree_are_taken(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    add_analysis(run, payload_of(2, report_of(TILE, target="sm_80"), "sm_80"))
    assert "threads 512 → 256" in plain(page_of(alice, run))


def test_a_kernel_that_was_renamed_is_still_compared(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    row = add_candidate(run, TILE)
    other = renamed(report_of(TILE), "softmax_other")
    add_analysis(run, payload_of(row.number, other), stored.pack(other.levels))
    page = page_of(alice, run, "&tab=ttir")
    assert 'id="change-2"' not in page


def test_kernels_are_paired_by_name_and_chosen_in_the_address(alice: Client, run: Run) -> None:
    for names in (("one", "two"), ("two", "one", "three")):
        row = add_candidate(run, TILE)
        levels = [
            Levels(name, "sm_90", (Level("ptx", f"mov.u32 \t%r1, {ord(name[0])};\n"),))
            for name in names
        ]
        payload = AnalysisPayload(row.number, "clean", target="sm_90", case="c")
        add_analysis(run, payload, stored.pack(levels))
    for name in ("one", "two"):
        page = plain(page_of(alice, run, f"&tab=ptx&kernel={name}"))
        assert "The PTX is the same on both sides" in page
    alone = plain(page_of(alice, run, "&tab=ptx&kernel=three"))
    assert "c1 has nothing like three, which only c2 has." in alone


def test_what_is_missing_on_one_side_is_said_with_its_reason(alice: Client) -> None:
    other = make_run("running", language="triton")
    analysed(other, TILE)
    add_candidate(other, FEWER_WARPS)
    add_analysis(other, AnalysisPayload(2, "unavailable", reason="no triton here"))
    assert "There are no levels of c2: no triton here" in plain(page_of(alice, other, "&tab=ptx"))
    unanalysed = make_run("running", language="triton")
    analysed(unanalysed, TILE)
    make_candidate(unanalysed, speedup=2.0)
    page = plain(page_of(alice, unanalysed, "&tab=ptx"))
    assert "c2 was not analysed" in page
    assert "No comparison of PTX" in page


def test_a_level_that_the_other_language_lacks_is_said_so(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    analysed(run, ROWS, "cpp")
    why = "The analysis of c2 has no numbers: host code is compiled but not examined."
    assert why in plain(page_of(alice, run))
    assert "c1 is written in Triton, which has no Assembly." in plain(
        page_of(alice, run, "&tab=asm")
    )
    assert "c2 is written in C++, which has no TTGIR." in plain(page_of(alice, run, "&tab=ttgir"))


def test_two_cpp_candidates_are_compared_by_their_assembly(alice: Client, run: Run) -> None:
    analysed(run, ROWS, "cpp")
    analysed(run, ROWS, "cpp")
    assert "The Assembly is the same on both sides" in plain(page_of(alice, run, "&tab=asm"))
    assert "no numbers" not in plain(page_of(alice, run))  # nothing of host code is counted


@pytest.mark.parametrize("content", [b"junk", stored.pack([])], ids=["junk", "nothing"])
def test_damaged_levels_are_said_and_the_other_tabs_stand(
    alice: Client, run: Run, content: bytes
) -> None:
    for _ in range(2):
        row = add_candidate(run, TILE)
        add_analysis(run, AnalysisPayload(row.number, "clean"), content)
    page = plain(page_of(alice, run, "&tab=sass"))
    assert "No comparison of SASS" in page
    assert "damaged" in page or "Neither side has a kernel" in page


def test_hostile_text_of_levels_stays_text(alice: Client, run: Run) -> None:
    for end in ("", "more"):
        with_text(
            run, f"{SCRIPT}\u202e\x1b {end}\n" * 3, kernel=f"{SCRIPT}\u202e", lines={1: 3, 2: -1}
        )
    for view in ("split", "unified"):
        page = page_of(alice, run, f"&tab=ptx&view={view}")
        assert SCRIPT not in page
        assert not re.search("[\u202e\x1b]", page)
        assert "alert(1)" in page


def test_a_missing_source_leaves_the_levels_matched_by_number(alice: Client, run: Run) -> None:
    row = analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    store.path(row.source_sha256).unlink()
    page = plain(page_of(alice, run, "&tab=ttgir"))
    assert "A source is not here, so its lines are matched by number." in page
    assert "warpsPerCTA" in page


@pytest.mark.parametrize("tab", ["", "ttgir", "ptx", "sass", "ttir", "llir"])
def test_queries_do_not_grow_with_candidates_and_analyses(alice: Client, tab: str) -> None:
    counts = []
    for extra in (1, 15):
        run = make_run("running", language="triton")
        analysed(run, TILE)
        analysed(run, FEWER_WARPS)
        for _ in range(extra):
            row = add_candidate(run, TILE)
            add_analysis(run, payload_of(row.number, report_of(TILE)))
            add_analysis(run, payload_of(1, report_of(TILE, target="sm_80"), "sm_80"))
        with CaptureQueriesContext(connection) as queries:
            page_of(alice, run, f"&tab={tab}")
        counts.append(len(queries))
    assert counts[0] == counts[1]
    assert counts[1] <= 16
