"""One candidate in, one analysis out: captures its kernels in the sandbox and reads what they use.

The parent's side. It never imports torch and never runs candidate code; the child's words are
decoded strictly, and what they say of a hostile candidate is advice, not evidence.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernels.catalog import Case, Problem, UnknownProblem, load_problem
from runner import languages, sandbox
from runner.analysis import station
from runner.analysis.advice import advise
from runner.analysis.captured import Captured, Trouble, TroubleKind
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
from runner.analysis.resources import KernelResources, resources
from runner.analysis.targets import DEFAULT, TARGETS, Target
from runner.evaluate.buffers import set_bytes
from runner.evaluate.channel import BadMessage
from runner.evaluate.devices import cpu_count
from runner.evaluate.keeper import (
    Child,
    ChildEnded,
    DeadlinePassed,
    Ending,
    Watch,
    ZygoteDied,
    exit_words,
)
from runner.spec import Limits, SpecError
from runner.wire import WireError, from_json, to_json

DEADLINE_S = 60.0
REPORT_BYTES = 128 << 20
OWN_TENSORS = 8  # what a candidate may allocate beside the inputs, in sets of tensors


@dataclass(frozen=True)
class AnalysisSpec:
    """What to analyse. `case` None is the first scored case of a GPU set; `file` names the source.

    `deadline_s` bounds the candidate's own work, compilation of its kernels included.
    """

    problem: str
    source: str
    language: str = "triton"
    target: str = DEFAULT
    case: str | None = None
    file: str = "candidate.py"
    deadline_s: float = DEADLINE_S
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Report:
    """The analysis, and every level of every kernel it is about."""

    analysis: Analysis
    levels: tuple[Levels, ...] = ()


class Blamed(Exception):
    """The candidate ended the capture; `finding` says how, `verdict` what that means."""

    def __init__(self, verdict: AnalysisVerdict, finding: Finding) -> None:
        super().__init__(finding.message)
        self.verdict, self.finding = verdict, finding


def analyze(spec: AnalysisSpec, *, cancel: threading.Event | None = None) -> Report:
    """Analyse one candidate for one target; blocks. Every failing candidate is a result.

    Raises SpecError for a request that cannot be met, and Cancelled.
    """
    request = Request.of(spec, cancel)
    try:
        witness = _witnessed(request)
    except Blamed as blamed:
        findings = (blamed.finding,)
        analysis = Analysis(blamed.verdict, str(blamed), findings, _scope(request, None))
        return Report(analysis)
    return _report(request, witness)


@dataclass(frozen=True)
class Request:
    """A validated AnalysisSpec with all it refers to."""

    spec: AnalysisSpec
    problem: Problem
    case: Case
    target: Target
    cancel: threading.Event | None

    @classmethod
    def of(cls, spec: AnalysisSpec, cancel: threading.Event | None) -> Request:
        try:
            problem = load_problem(spec.problem)
        except UnknownProblem as error:
            raise SpecError("problem", str(error), error.remedy) from error
        if spec.language != "triton":
            raise SpecError("language", f"{spec.language!r} is not analysed.", "Use triton.")
        if spec.target not in TARGETS:
            remedy = f"Use one of: {', '.join(TARGETS)}."
            raise SpecError("arch", f"{spec.target!r} is not a known target.", remedy)
        return cls(spec, problem, _case(problem, spec.case), TARGETS[spec.target], cancel)


def _case(problem: Problem, name: str | None) -> Case:
    """The case of that name; without one the first scored case of a GPU set, or of any."""
    if name is None:
        scored = [case for case in problem.cases if case.scored]
        on_gpu = [case for case in scored if any(each.startswith("gpu") for each in case.sets)]
        return (on_gpu or scored)[0]
    for case in problem.cases:
        if case.name == name:
            return case
    remedy = f"Use one of: {', '.join(case.name for case in problem.cases)}."
    raise SpecError("case", f"{problem.slug} has no case {name!r}.", remedy)


@dataclass(frozen=True)
class Witness:
    """What the child wrote down, what it printed, and the folder it worked in."""

    captured: Captured
    output: str
    folder: str


def _witnessed(request: Request) -> Witness:
    """Have a child capture the candidate. Raises Blamed.

    A station that dies under a candidate may be an accident; twice under one is no accident.
    """
    for attempt in range(2):
        try:
            return _capture(request)
        except ZygoteDied as died:
            if attempt:
                words = f"twice it took down the process that had started it ({died})"
                raise _blamed(request, FindingKind.run_error, words) from died
    raise AssertionError("unreachable")


def _capture(request: Request) -> Witness:
    with station.borrowed(request.cancel) as zygote, zygote.folder.subfolder() as folder:
        compiled = languages.get("triton").compile(
            request.spec.source, folder, request.spec.limits, cancel=request.cancel
        )
        if compiled.artifact is None:
            found = re.match(r"[^:]+:(\d+): ", compiled.reason)
            line = int(found[1]) if found else None
            raise _blamed(request, FindingKind.compile_error, compiled.reason, line)
        report = os.memfd_create("capture")
        try:
            child = zygote.fork(folder, _rlimits(request), request.spec.limits.output_bytes)
            with _ended(child) as endings:
                _ask(request, child, str(compiled.artifact), report)
            return Witness(_decoded(request, report), endings[0].output, str(folder))
        finally:
            os.close(report)


@contextmanager
def _ended(child: Child) -> Iterator[list[Ending]]:
    """The child is gone when this is left; how it ended is in the list then."""
    endings: list[Ending] = []
    try:
        yield endings
    finally:
        endings.append(child.end())


def _ask(request: Request, child: Child, artifact: str, report: int) -> None:
    """Have the child capture. Raises Blamed when it does not answer."""
    inputs = [
        [list(request.case.shape(each)), request.case.dtype_of(each)]
        for each in request.problem.inputs
    ]
    message = {"artifact": artifact, "target": request.target.name, "inputs": inputs}
    watch = Watch(time.monotonic() + request.spec.deadline_s, request.cancel)
    try:
        child.ask(message, watch, [report])
    except DeadlinePassed:
        words = f"it did not finish within {request.spec.deadline_s:g} s"
        verdict = AnalysisVerdict.incomplete
        raise _blamed(request, FindingKind.deadline_passed, words, verdict=verdict) from None
    except ChildEnded as ended:
        if ended.status == -signal.SIGXCPU:
            words = "it used up its processor time"
            verdict = AnalysisVerdict.incomplete
            raise _blamed(request, FindingKind.deadline_passed, words, verdict=verdict) from None
        words = f"the candidate {exit_words(ended.status)}"
        raise _blamed(request, FindingKind.run_error, words) from None
    except BadMessage as error:
        raise _blamed(request, FindingKind.run_error, f"forged words: {error}") from None


def _rlimits(request: Request) -> dict[str, Any]:
    tensors = OWN_TENSORS * set_bytes(request.problem, request.case)
    return {
        "cpu_s": int(request.spec.deadline_s * cpu_count()) + 10,
        "address_space_bytes": request.spec.limits.memory_bytes + tensors,
    }


def _decoded(request: Request, report: int) -> Captured:
    """Strictly: the candidate shares a process with who wrote it."""
    size = os.fstat(report).st_size
    if size > REPORT_BYTES:
        raise _blamed(request, FindingKind.run_error, f"a report of {size} bytes")
    try:
        return from_json(Captured, json.loads(os.pread(report, size, 0)))
    except (WireError, ValueError, RecursionError) as error:
        raise _blamed(request, FindingKind.run_error, f"a forged report: {error}") from None


def _blamed(
    request: Request,
    kind: FindingKind,
    message: str,
    line: int | None = None,
    verdict: AnalysisVerdict = AnalysisVerdict.error,
) -> Blamed:
    source = None if line is None else Source(request.spec.file, line)
    return Blamed(verdict, Finding(kind, Severity.error, message, source))


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
    shortfall = _shortfall(request, captured, witness.output)
    findings = shortfall.findings + findings
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


@dataclass
class Shortfall:
    """What kept the analysis from looking at everything; `verdict` None when nothing did."""

    verdict: AnalysisVerdict | None = None
    reason: str = ""
    findings: list[Finding] = field(default_factory=list)

    def add(self, verdict: AnalysisVerdict | None, finding: Finding) -> None:
        """The first reason given stays; `error` outranks `incomplete`."""
        self.findings.append(finding)
        if verdict is AnalysisVerdict.error or (verdict and self.verdict is None):
            self.verdict, self.reason = verdict, finding.message


def _shortfall(request: Request, captured: Captured, output: str) -> Shortfall:
    shortfall = Shortfall()
    if captured.trouble is not None:
        verdict, finding = _troubled(request, captured.trouble, output)
        shortfall.add(verdict, finding)
    incomplete = AnalysisVerdict.incomplete
    for words in captured.thread_errors:
        message = f"a thread of the candidate ended with {words}; its launches were not seen"
        shortfall.add(incomplete, _finding(FindingKind.not_captured, message))
    if captured.threads_left:
        message = f"{captured.threads_left} threads still ran when run had returned"
        shortfall.add(incomplete, _finding(FindingKind.not_captured, message))
    for kernel in captured.kernels:
        if not kernel.sass:
            message = f"{kernel.name} could not be disassembled"
            shortfall.add(incomplete, _finding(FindingKind.missing_tool, message))
    if not captured.kernels and captured.trouble is None:
        message = f"run launched no Triton kernel on {request.case.name}"
        shortfall.add(incomplete, _finding(FindingKind.not_captured, message))
    return shortfall


def _finding(kind: FindingKind, message: str, source: Source | None = None) -> Finding:
    return Finding(kind, Severity.warning, message, source)


def _troubled(
    request: Request, trouble: Trouble, output: str
) -> tuple[AnalysisVerdict | None, Finding]:
    """A kernel that does not fit was analysed all the same: that is for review, not an error."""
    line = trouble.line
    kinds = {
        TroubleKind.compile: FindingKind.compile_error,
        TroubleKind.resources: FindingKind.does_not_fit,
        TroubleKind.limit: FindingKind.unsupported_operation,
    }
    verdict: AnalysisVerdict | None = AnalysisVerdict.error
    if trouble.kind is TroubleKind.compile:
        line = _line_of_error(output) or line
    elif trouble.kind is TroubleKind.resources:
        verdict = None
    elif trouble.kind is TroubleKind.limit:
        verdict = AnalysisVerdict.incomplete
    source = None if line is None else Source(request.spec.file, line)
    kind = kinds.get(trouble.kind, FindingKind.run_error)
    return verdict, Finding(kind, Severity.error, trouble.message, source)


_MLIR_ERROR = re.compile(r'candidate\.py"?:(\d+):\d+[^\n]*\berror:')


def _line_of_error(output: str) -> int | None:
    """Where MLIR's diagnostics point, which only go to the standard error stream."""
    found = _MLIR_ERROR.search(output)
    return int(found[1]) if found else None


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
