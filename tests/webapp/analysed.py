"""Candidates with analyses that really happened, each made when a test first asks for it."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import replace
from pathlib import Path

from runner.analysis import stored
from runner.analysis.analyze import AnalysisSpec, Report, analyze
from runner.events import AnalysisPayload, CandidatePayload
from runner.wire import to_json
from tests.factories import make_event
from webapp.runs.models import Candidate, Event, Run

ZOO = Path(__file__).resolve().parents[2] / "kernels" / "problems" / "softmax" / "zoo"
TILE = (ZOO / "softmax_tile.py").read_text()
FEWER_WARPS = TILE.replace("NUM_WARPS = 16", "NUM_WARPS = 8")
ROWS = (ZOO / "softmax_rows.cpp").read_text()
CASE = "8192x16384-bf16"


@functools.cache
def report_of(source: str, language: str = "triton", target: str = "sm_90") -> Report:
    """The analysis of a softmax kernel on this host, as the loop asks for it."""
    suffix = "cpp" if language == "cpp" else "py"
    return analyze(AnalysisSpec("softmax", source, language, target, CASE, file=f"c1.{suffix}"))


def payload_of(number: int, report: Report, target: str = "sm_90") -> AnalysisPayload:
    found = report.analysis
    return AnalysisPayload(
        candidate=number,
        verdict=found.verdict.value,
        findings=tuple(to_json(finding) for finding in found.findings),
        resources=found.resources,
        reason=found.reason,
        scope=found.scope,
        target=target,
        case=CASE,
    )


def add_candidate(run: Run, source: str, language: str = "triton") -> Candidate:
    """A candidate that is not evaluated."""
    number = run.candidates.count() + 1
    content = source.encode()
    payload = CandidatePayload(
        number=number,
        parent=number - 1 or None,
        language=language,
        idea="Fewer warps leave each of them more registers.",
        author="search",
        source_sha256=hashlib.sha256(content).hexdigest(),
    )
    make_event(run, payload, {f"c{number}": content})
    return run.candidates.get(number=number)


def add_analysis(run: Run, payload: AnalysisPayload, levels: bytes | None = None) -> Event:
    return make_event(run, payload, {stored.ARTIFACT: levels} if levels is not None else None)


def analysed(run: Run, source: str, language: str = "triton", target: str = "sm_90") -> Candidate:
    """A candidate and the analysis of it."""
    row = add_candidate(run, source, language)
    report = report_of(source, language, target)
    add_analysis(run, payload_of(row.number, report, target), stored.pack(report.levels))
    return row


def renamed(report: Report, kernel: str) -> Report:
    """The same with its first kernel under another name."""
    first = replace(report.levels[0], kernel=kernel)
    return replace(report, levels=(first, *report.levels[1:]))
