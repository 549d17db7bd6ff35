"""What analysis and simulation say of a run's candidates, and where it is kept in the log.

Each is made once for a candidate, target and case. Neither decides anything: they advise. Where
they cannot be made, that is said with its reason and the run goes on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner import languages
from runner.events import AnalysisPayload
from runner.loop import Loop
from runner.spec import device_kind
from runner.state import AnalysisKey
from runner.wire import to_json

if TYPE_CHECKING:
    from runner.analysis.analyze import AnalysisSpec, Report
    from runner.analysis.findings import Analysis
    from runner.analysis.simulate import SimulationSpec

TARGET = "sm_90"
MAX_FINDINGS = 50  # in an event; a kernel with more has other worries
UNAVAILABLE = "unavailable"


class LocalExaminer:
    """Analyses on this host; torch and Triton are started when first asked for."""

    def analyze(self, spec: AnalysisSpec) -> Report:
        from runner.analysis import analyze  # imports numpy, which no other agent work needs

        return analyze.analyze(spec)

    def simulate(self, spec: SimulationSpec) -> Analysis:
        from runner.analysis import simulate

        return simulate.simulate(spec)


def analyze(loop: Loop, number: int, target: str = "", case: str = "") -> AnalysisPayload | None:
    """Analyse a candidate for a target and log it; None where nothing can analyse here.

    The target is the run's own device once an evaluation has told which that is.
    """
    examiner, candidate = loop.examiner, loop.state.candidates[number]
    if candidate.language != "cpp":  # which is compiled for the host, whatever the case
        target, case = target or _target(loop), case or _case(loop)
    key = AnalysisKey(number, "analyze", target, case)
    if examiner is None or key in loop.state.analyses:
        return loop.state.analyses.get(key)
    from runner.analysis import stored
    from runner.analysis.analyze import AnalysisSpec

    spec = AnalysisSpec(
        problem=loop.spec.problem,
        source=loop.source(number),
        language=candidate.language,
        target=target or TARGET,
        case=case or None,
        file=_file(loop, number),
    )
    try:
        report = examiner.analyze(spec)
    except RuntimeError as error:  # torch, Triton or a compiler does not start here
        return _unavailable(loop, key, error)
    artifacts = {stored.ARTIFACT: stored.pack(report.levels)} if report.levels else None
    loop.record_analysis(_payload(key, report.analysis), artifacts)
    return loop.state.analyses[key]


def simulate(loop: Loop, number: int, case: str = "") -> AnalysisPayload | None:
    """Simulate a candidate on a case, the problem's small one by default, and log it."""
    from runner.analysis.simulate_request import SimulationSpec, small_case

    examiner, candidate = loop.examiner, loop.state.candidates[number]
    case = case or small_case(loop.problem).name
    key = AnalysisKey(number, "simulate", "", case)
    if examiner is None or key in loop.state.analyses:
        return loop.state.analyses.get(key)
    spec = SimulationSpec(
        problem=loop.spec.problem,
        source=loop.source(number),
        language=candidate.language,
        case=case,
        file=_file(loop, number),
    )
    try:
        found = examiner.simulate(spec)
    except RuntimeError as error:
        return _unavailable(loop, key, error)
    loop.record_analysis(_payload(key, found))
    return loop.state.analyses[key]


def _target(loop: Loop) -> str:
    """That of the device that the run is measured on, where it is known and can be analysed for."""
    from runner.analysis.targets import TARGETS

    for evaluation in loop.state.evaluations.values():
        capability = evaluation.device.details.get("compute capability", "")
        target = f"sm_{capability.replace('.', '')}"
        if target in TARGETS:
            return target
    return TARGET


def _case(loop: Loop) -> str:
    """The first scored case of the run's own set on a GPU, else the first one made for a GPU."""
    cases = [case for case in loop.problem.cases if case.scored]
    if device_kind(loop.spec.device) == "cuda":
        cases = [case for case in cases if loop.spec.case_set in case.sets] or cases
    on_gpu = [case for case in cases if any(name.startswith("gpu") for name in case.sets)]
    return (on_gpu or cases)[0].name


def _file(loop: Loop, number: int) -> str:
    suffix = languages.get(loop.state.candidates[number].language).SUFFIX
    return f"c{number}{suffix}"


def _payload(key: AnalysisKey, found: Analysis) -> AnalysisPayload:
    findings = tuple(to_json(finding) for finding in found.findings[:MAX_FINDINGS])
    return AnalysisPayload(
        candidate=key.candidate,
        verdict=found.verdict.value,
        findings=findings,
        resources=found.resources,
        reason=found.reason,
        scope=found.scope,
        tool=key.tool,
        target=key.target,
        case=key.case,
    )


def _unavailable(loop: Loop, key: AnalysisKey, error: Exception) -> AnalysisPayload:
    words = " ".join(str(error).split())[:400] or type(error).__name__
    payload = AnalysisPayload(
        candidate=key.candidate,
        verdict=UNAVAILABLE,
        reason=words,
        tool=key.tool,
        target=key.target,
        case=key.case,
    )
    loop.record_analysis(payload)
    return payload
