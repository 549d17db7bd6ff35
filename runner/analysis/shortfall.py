"""What kept an analysis from looking at everything, in findings and a verdict."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from runner.analysis.captured import Captured, Trouble, TroubleKind
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    Source,
)
from runner.analysis.request import Request


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

    def admit(self, part: Analysis) -> None:
        """A part that was not looked at in full makes the whole incomplete."""
        if part.verdict is AnalysisVerdict.incomplete and self.verdict is None:
            self.verdict, self.reason = part.verdict, part.reason


def shortfall_of(request: Request, captured: Captured, output: str) -> Shortfall:
    """`output` is what the child printed: MLIR names lines there and nowhere else."""
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
    if captured.kernels_left:
        message = f"{captured.kernels_left} more kernels were compiled than are looked at"
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
    message = trouble.message
    if trouble.kind is TroubleKind.compile and message.endswith(_PASS_FAILED):
        line, message = _diagnosed(output, line, message)
    elif trouble.kind is TroubleKind.resources:
        verdict = None
    elif trouble.kind is TroubleKind.limit:
        verdict = AnalysisVerdict.incomplete
    source = None if line is None else Source(request.spec.file, line)
    kind = kinds.get(trouble.kind, FindingKind.run_error)
    return verdict, Finding(kind, Severity.error, message, source)


_PASS_FAILED = "PassManager::run failed"
_MLIR_LINE = re.compile(r'candidate\.py"?:(\d+):\d+[^\n]*\berror:')
_MLIR_WORDS = re.compile(r"\berror: ([^\n]+)")


def _diagnosed(output: str, line: int | None, message: str) -> tuple[int | None, str]:
    """MLIR's own line and words, which go to the standard error stream and nowhere else."""
    place, words = _MLIR_LINE.search(output), _MLIR_WORDS.search(output)
    return int(place[1]) if place else line, words[1] if words else message
