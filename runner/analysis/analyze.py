"""One candidate in, one analysis out: captures its kernels in the sandbox and reads what they use.

The parent's side. It never imports torch and never runs candidate code; the child's words are
decoded strictly, and what they say of a hostile candidate is advice, not evidence.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runner import sandbox
from runner.analysis.advice import advise, advise_case
from runner.analysis.captured import Captured
from runner.analysis.cuda import ASSUMED_THREADS, compile_kernels
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Blamed,
    Finding,
    FindingKind,
    Severity,
    Source,
    verdict_of,
)
from runner.analysis.levels import Levels, levels_of
from runner.analysis.native import DoesNotCompile, cpp_levels
from runner.analysis.protocol import Limits, examine_protocol, synchronises
from runner.analysis.request import AnalysisSpec, Request
from runner.analysis.resources import KernelResources, resources
from runner.analysis.shortfall import shortfall_of
from runner.analysis.witness import Witness, witnessed
from runner.evaluate.keeper import WorkFolder
from runner.languages import MissingCompiler
from runner.wire import to_json

__all__ = ["AnalysisSpec", "Report", "analyze"]
NO_FIT = FindingKind.does_not_fit
SEARCH = Limits(configurations=128, states=100_000)  # of a kernel's barriers: a second or two


@dataclass(frozen=True)
class Report:
    """The analysis, and every level of every kernel it is about."""

    analysis: Analysis
    levels: tuple[Levels, ...] = ()


def analyze(spec: AnalysisSpec, *, cancel: threading.Event | None = None) -> Report:
    """Analyse one candidate for one target; blocks. Every failing candidate is a result.

    Raises SpecError for a request that cannot be met, Cancelled, and station.Unavailable.
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
    """C++ and CUDA C++: compiled as they are, for nothing launches them here."""
    try:
        with work_folder() as folder:
            compiled = {"cpp": _cpp, "cuda": _cuda}[request.spec.language]
            return compiled(request, folder)
    except MissingCompiler as error:
        verdict = AnalysisVerdict.incomplete
        finding = Finding(FindingKind.missing_tool, Severity.warning, str(error))
    except DoesNotCompile as error:
        verdict = AnalysisVerdict.error
        source = None if error.line is None else Source(request.spec.file, error.line)
        finding = Finding(FindingKind.compile_error, Severity.error, str(error), source)
    scope = (sandbox.isolation().sentence,)
    return Report(Analysis(verdict, finding.message, (finding,), scope))


def _cpp(request: Request, folder: Path) -> Report:
    """Its assembly and no more, so it cannot be clean."""
    spec = request.spec
    levels = (cpp_levels(spec.source, folder, spec.limits, request.cancel),)
    words = "host code is compiled but not examined"
    finding = Finding(FindingKind.unsupported_operation, Severity.info, words)
    scope = ("assembly, with the flags that the evaluation uses", sandbox.isolation().sentence)
    return Report(Analysis(AnalysisVerdict.incomplete, words, (finding,), scope), levels)


def _cuda(request: Request, folder: Path) -> Report:
    """Every kernel of the file, whether it is launched or not."""
    spec, target = request.spec, request.target
    compiled = compile_kernels(spec.source, folder, target, spec.limits, request.cancel)
    levels = tuple(levels_of(each, target.name, str(folder)) for each in compiled.kernels)
    pairs = zip(compiled.kernels, levels, strict=True)
    found = tuple(resources(each, level, (), target) for each, level in pairs if each.sass)
    findings = [finding for each in found for finding in advise(each, spec.file)]
    findings += advise_case(request.case, found, spec.file)
    verdict, reason = verdict_of(findings), _summary(findings)
    if not compiled.kernels or len(found) < len(compiled.kernels):
        verdict = AnalysisVerdict.incomplete
        reason = "the file has no kernel, or one that could not be disassembled"
    scope = [
        f"every kernel of the file, compiled for {target.name}; launches are not captured, so"
        " grids, dynamic shared memory, tiles and addresses are not known",
        *(
            f"{name} has no __launch_bounds__: {ASSUMED_THREADS} threads a block, assumed"
            for name in compiled.unbounded
        ),
        sandbox.isolation().sentence,
    ]
    document = _document(request, found)
    return Report(Analysis(verdict, reason, tuple(findings), tuple(scope), document), levels)


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
        levels_of(each, request.target.name, witness.folder) for each in captured.kernels
    )
    found = tuple(
        _resources(request, captured, position, level)
        for position, level in enumerate(levels)
        if captured.kernels[position].sass
    )
    findings = [finding for each in found for finding in advise(each, request.spec.file)]
    if not captured.products:  # else torch has done the arithmetic, on tensor cores
        findings += advise_case(request.case, found, request.spec.file)
    shortfall = shortfall_of(request, captured, witness.output)
    searched = _protocols(request, captured)
    for each in searched:
        findings += each.findings
        shortfall.admit(each)
    seen = {finding.kind for finding in findings}
    # Triton's own refusal of a kernel that does not fit says less than ours.
    findings += [each for each in shortfall.findings if each.kind not in seen & {NO_FIT}]
    verdict = shortfall.verdict or verdict_of(findings)
    analysis = Analysis(
        verdict=verdict,
        reason=shortfall.reason or _summary(findings),
        findings=tuple(findings),
        scope=(*_scope(request, captured), *(line for each in searched for line in each.scope)),
        resources=_document(request, found),
    )
    return Report(analysis, levels)


def _resources(
    request: Request, captured: Captured, position: int, levels: Levels
) -> KernelResources:
    kernel = captured.kernels[position]
    launches = tuple(each for each in captured.launches if each.key == kernel.key)
    return resources(kernel, levels, launches, request.target)


def _protocols(request: Request, captured: Captured) -> list[Analysis]:
    """The barriers of Gluon kernels, which their author placed; those of Triton are its own."""
    explicit = [each for each in captured.kernels if not each.ttir and synchronises(each.ttgir)]
    return [
        _renamed(examine_protocol(each.ttgir, each.name, SEARCH), each.name, request.spec.file)
        for each in explicit
    ]


def _renamed(found: Analysis, kernel: str, file: str) -> Analysis:
    """Lines are of the candidate's file already; its name is the one that the reader knows."""
    findings = tuple(
        replace(each, source=each.source and Source(file, each.source.line))
        for each in found.findings
    )
    scope = tuple(f"barriers of {kernel}: {line}" for line in found.scope)
    return replace(found, findings=findings, scope=scope)


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
        if captured.products:
            scope.append(f"torch's {', '.join(captured.products)}: shaped, not computed")
        if any(each.in_thread for each in captured.launches):
            scope.append("launches from other threads were seen while run was running")
        scope.append(
            "addresses are those of program 0 on the first trip of each loop, where they do not"
            " depend on memory"
        )
    scope.append("compiled by the candidate's own process: advice, not evidence against cheating")
    scope.append(sandbox.isolation().sentence)
    return tuple(scope)
