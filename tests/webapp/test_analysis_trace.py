"""An analysis in the trace: verdict, findings with their lines, what kernels use, the scope."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from runner.events import AnalysisPayload
from tests.factories import make_event, make_run
from tests.webapp.analysed import TILE, add_candidate, payload_of, report_of
from webapp.runs.models import Run
from webapp.runs.rendering import render_event

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>\u202e\x1b"
SPILL = {
    "kind": "register_spill",
    "severity": "warning",
    "message": "softmax_short_rows spills 12 bytes",
    "source": {"file": "c1.py", "line": 32},
    "level": "sass",
    "kernel": "softmax_short_rows",
    "evidence": {"bytes": 12},
}
RACE = {"kind": "write_race", "severity": "error", "message": "two programs write y[0]"}
STEPS = {
    "kind": "deadlock",
    "severity": "error",
    "message": "nobody goes on",
    "evidence": {"steps": ["1. the producer waits", "2. so does the consumer"]},
}


@pytest.fixture
def run() -> Run:
    run = make_run("running")
    add_candidate(run, TILE)
    return run


def row_of(run: Run, payload: AnalysisPayload) -> str:
    return render_event(make_event(run, payload))


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def test_a_clean_analysis_says_for_what_and_what_each_kernel_uses(run: Run) -> None:
    row = row_of(run, payload_of(1, report_of(TILE)))
    assert "Analysis of c1 ✓ clean sm_90 · 8192x16384-bf16" in plain(row)
    assert (
        "softmax_short_rows registers 64 spills 0 B shared 64 B occupancy 50% limited by registers"
        in plain(row)
    )
    assert '<details class="fold"><summary>what was looked at</summary>' in row
    assert "inputs of zeros, compiled for sm_90" in row


def test_findings_are_counted_and_lead_to_their_line_of_the_candidate(run: Run) -> None:
    row = row_of(run, AnalysisPayload(1, "review", (SPILL, RACE, SPILL), target="sm_90", case="c"))
    assert "⚠ review ✕ 1 error ⚠ 2 warnings sm_90 · c" in plain(row)
    assert f'<a href="/runs/{run.pk}/c/1/#L32">line 32</a>' in row
    assert plain(row).index("two programs write y[0]") < plain(row).index("spills 12 bytes")


def test_what_usually_fixes_it_is_folded_under_each_finding(run: Run) -> None:
    row = row_of(run, AnalysisPayload(1, "review", (SPILL, STEPS)))
    assert row.count("<summary>what usually fixes it</summary>") == 2
    assert "Use a smaller tile or more warps" in row
    assert re.search(r"<li[^>]*>2\. so does the consumer</li>", row)


def test_an_analysis_that_could_not_be_made_says_why(run: Run) -> None:
    why = "the analysis cannot start: No module named triton"
    row = row_of(run, AnalysisPayload(1, "unavailable", reason=why, target="sm_90"))
    assert "○ unavailable" in plain(row)
    assert why in row


def test_a_simulation_is_called_one_and_names_the_case_that_it_chose(run: Run) -> None:
    resources = {"case": "odd-1023x777-bf16", "launches": []}
    payload = AnalysisPayload(1, "clean", tool="simulate", resources=resources)
    assert "Simulation of c1 ✓ clean odd-1023x777-bf16" in plain(row_of(run, payload))


def test_what_is_too_much_for_the_trace_is_counted_and_one_click_away(run: Run) -> None:
    [kernel] = report_of(TILE).analysis.resources["kernels"]
    payload = AnalysisPayload(1, "review", (SPILL,) * 9, {"kernels": [kernel] * 5})
    row = row_of(run, payload)
    assert row.count("spills 12 bytes") == 5
    assert "all 9 findings" in row
    assert "2 more kernels" in row


@pytest.mark.parametrize(
    "strange",
    [
        {"verdict": HOSTILE},
        {"tool": HOSTILE},
        {"target": HOSTILE, "case": HOSTILE, "reason": HOSTILE, "scope": (HOSTILE,)},
        {"verdict": "error", "reason": HOSTILE * 5_000},
        {"resources": {HOSTILE: HOSTILE, "case": [HOSTILE]}},
        {"resources": {"kernels": [HOSTILE, {"kernel": HOSTILE, "occupancy": HOSTILE}]}},
        {"resources": {"kernels": {HOSTILE: 1}}},
        {"findings": (dict.fromkeys(SPILL, HOSTILE),)},
        {"findings": ({name: [HOSTILE, {HOSTILE: None}] for name in SPILL},)},
        {"findings": ({**SPILL, "source": {"line": HOSTILE}, "evidence": {HOSTILE: HOSTILE}},)},
        {"findings": ({**SPILL, "evidence": {"steps": [HOSTILE], "assumed": {HOSTILE: HOSTILE}}},)},
        {"findings": ({**SPILL, "source": {"line": 10**30}}, {})},
    ],
)  # fmt: skip
def test_strange_and_hostile_analyses_stay_words(run: Run, strange: dict[str, Any]) -> None:
    row = row_of(run, replace(payload_of(1, report_of(TILE)), **strange))
    assert "<script>" not in row
    assert not re.search("[\u202e\x1b]", row)
    assert len(row) < 60_000
