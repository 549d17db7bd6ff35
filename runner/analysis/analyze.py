"""One candidate in, one analysis out: captures its kernels in the sandbox and reads what they use.

The parent's side. It never imports torch and never runs candidate code; the child's words are
decoded strictly, and what they say of a hostile candidate is advice, not evidence.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner import sandbox
from runner.analysis.advice import advise, advise_case
from runner.analysis.captured import Captured
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    Source,
    verdict_of,
)
from runner.analysis.levels import Levels, triton_levels
from runner.analysis.native import DoesNotCompile, cpp_levels
from runner.analysis.request import AnalysisSpec, Request
from runner.analysis.resources import KernelResources, resources
from runner.analysis.shortfall import shortfall_of
from runner.analysis.witness import Blamed, Witness, witnessed
from runner.evaluate.keeper import WorkFolder
from runner.languages import MissingCompiler
from runner.wire import to_json

__all__ = ["AnalysisSpec", "Report", "analyze"]
NO_FIT = FindingKind.does_not_fit


@dataclass(frozen=True)
class Report:
    """The analysis, and every level of every kernel it is about."""

    analysis: Analysis
    levels: tuple[Levels, ...] = ()


def analyze(spec: AnalysisSpec, *, cancel: threading.Event | None = None) -> Report:
    """Analyse one candidate for one target; blocks. Every failing candidate is a result.

    Raises SpecError for a request that cannot be met, and Cancelled.
    """
    request = Request.of(spec, cancel)
    if spec.language != "triton":
        return _native(request)
    try:
        witness = witnessed(request)
    except Blamed as blamed:
        findings = (blamed.finding,)
        analysis = Analysis(blamed.verdict, str(blamed), findings, _scope(request, None))
        return Report(analysis)
    return _report(request, witness)


def _native(request: Request) -> Report:
    """C++ has levels and no more, CUDA C++ not even those: neither can be clean."""
    incomplete = AnalysisVerdict.incomplete
    levels: tuple[Levels, ...] = ()
    try:
        if request.spec.language == "cuda":
            here = "is not used yet" if shutil.which("nvcc") else "is not on this machine"
            raise MissingCompiler(f"CUDA C++ needs nvcc, which {here}", "")
        with work_folder() as folder:
            levels = (cpp_levels(request.spec.source, folder, request.spec.limits, request.cancel),)
        kind, words = FindingKind.unsupported_operation, "host code is compiled but not examined"
        finding, verdict = Finding(kind, Severity.info, words), incomplete
    except MissingCompiler as error:
        finding = Finding(FindingKind.missing_tool, Severity.warning, str(error))
        verdict = incomplete
    except DoesNotCompile as error:
        source = None if error.line is None else Source(request.spec.file, error.line)
        finding = Finding(FindingKind.compile_error, Severity.error, str(error), source)
        verdict = AnalysisVerdict.error
    scope = ("assembly of the flags that the evaluation uses", sandbox.isolation().sentence)
    return Report(Analysis(verdict, finding.message, (finding,), scope), levels)


@contextmanager
def work_folder() -> Iterator[Path]:
    """A private folder, gone afterwards; that of a killed parent is swept away by the next."""
    folder = WorkFolder()
    try:
        yield folder.path
    finally:
        folder.remove()


def _report(request: Request, witness: Witness) -> Report:
    captured = witness.captured
    levels = tuple(
        triton_levels(each, request.target.name, witness.folder) for each in captured.kernels
    )
    found = tuple(
        _resources(request, captured, position, level)
        for position, level in enumerate(levels)
        if captured.kernels[position].sass
    )
    findings = [finding for each in found for finding in advise(each, request.spec.file)]
    findings += advise_case(request.case, found, request.spec.file)
    shortfall = shortfall_of(request, captured, witness.output)
    seen = {finding.kind for finding in findings}
    # Triton's own refusal of a kernel that does not fit says less than ours.
    findings += [each for each in shortfall.findings if each.kind not in seen & {NO_FIT}]
    verdict = shortfall.verdict or verdict_of(findings)
    analysis = Analysis(
        verdict=verdict,
        reason=shortfall.reason or _summary(findings),
        findings=tuple(findings),
        scope=_scope(request, captured),
        resources=_document(request, found),
    )
    return Report(analysis, levels)


def _resources(
    request: Request, captured: Captured, position: int, levels: Levels
) -> KernelResources:
    kernel = captured.kernels[position]
    launches = tuple(each for each in captured.launches if each.key == kernel.key)
    return resources(kernel, levels, launches, request.target)


def _document(request: Request, found: tuple[KernelResources, ...]) -> dict[str, Any]:
    return {
        "target": request.target.name,
        "board": request.target.board,
        "case": request.case.name,
        "kernels": to_json(found),
    }


def _summary(findings: list[Finding]) -> str:
    """The worst finding in full, and how many there are besides."""
    worth = [each for each in findings if each.severity is not Severity.info]
    if not worth:
        return ""
    more = f" (and {len(worth) - 1} more)" if len(worth) > 1 else ""
    return worth[0].message + more


def _scope(request: Request, captured: Captured | None) -> tuple[str, ...]:
    """What was covered, what was assumed, what was not looked at."""
    board = request.target.board
    scope = [
        f"one call of run on {request.case.name}, inputs of zeros, compiled for"
        f" {request.target.name}; kernels were not run, so what run reads back is not what they"
        " would have written",
        f"the number of multiprocessors is that of one board, {board}",
    ]
    if captured is not None:
        scope += [
            f"{each.kernel} is autotuned: of {each.configurations} configurations the first that"
            f" fits was analysed, {each.chosen or 'and none did'}"
            for each in captured.autotuned
        ]
        if captured.assumed:
            scope.append(f"{', '.join(captured.assumed)}: answered as by {board}, assumed")
        if any(each.in_thread for each in captured.launches):
            scope.append("launches from other threads were seen while run was running")
        scope.append(
            "addresses are those of program 0 on the first trip of each loop, where they do not"
            " depend on memory"
        )
    scope.append("compiled by the candidate's own process: advice, not evidence against cheating")
    scope.append(sandbox.isolation().sentence)
    return tuple(scope)
