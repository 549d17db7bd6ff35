"""The evaluation service: one candidate in, one Evaluation out.

This module is the parent of DESIGN's three processes. It alone writes the verdict. It never
imports torch and never runs candidate code; a kernel that fails is a result, a defect of ours
ends as `harness_error`.
"""

from __future__ import annotations

import hashlib
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernels.catalog import Case, Problem
from runner import languages, sandbox
from runner.evaluate import buffers, ceilings, keeper
from runner.evaluate.devices import cache_folder, cpu_count, device_info, state_after
from runner.evaluate.keeper import Child, Ending, Kind, Watch, WorkFolder, Zygote
from runner.evaluate.lease import lease
from runner.evaluate.neighbours import neighbours_of
from runner.evaluate.session import POOL_SETS, CaseFailed, Children, Evidence, FatalCase, Session
from runner.languages import CompileResult, MissingCompiler
from runner.processes import Cancelled
from runner.results import CaseResult, DeviceInfo, Evaluation, IntegrityCheck, Verdict
from runner.spec import EvaluationSpec, SpecError, device_kind, known_problem

__all__ = ["Cancelled", "evaluate"]

TRACEBACK_CHARACTERS = 4000
TIMERS = {
    "host": "host clock around one call, cold caches, rotating inputs; both sides write to given"
    " outputs (C++) or both allocate (Python)",
    "cuda": "CUDA events around one call, L2 flushed before it, device synchronised",
}
NOT_TIMED = "nothing was timed: the request was for a check alone"
Progress = Callable[[str], None]

# Worst first: the case that says most about what is wrong decides the verdict.
SEVERITY = (
    Verdict.harness_error,
    Verdict.compile_error,
    Verdict.tampered,
    Verdict.crashed,
    Verdict.out_of_memory,
    Verdict.timeout,
    Verdict.mutated_input,
    Verdict.wrong_shape,
    Verdict.wrong_dtype,
    Verdict.non_finite,
    Verdict.wrong_values,
    Verdict.flaky,
    Verdict.timing_disputed,
    Verdict.impossible,
    Verdict.unmeasured,
)


def evaluate(
    spec: EvaluationSpec,
    *,
    cancel: threading.Event | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Judge one candidate; blocks. Every failing kernel is a typed result.

    Raises SpecError for a request that cannot be met and Cancelled when `cancel` was set, after
    every process started for it is gone. `progress` hears short phase names.
    """
    started = time.monotonic()
    request = Request.of(spec, cancel, progress or (lambda phase: None))
    try:
        evaluation = _evaluate(request)
    except (SpecError, Cancelled):
        raise
    except Exception:  # the task boundary: whatever is left is our defect, not the kernel's
        text = traceback.format_exc()[-TRACEBACK_CHARACTERS:]
        last = text.strip().splitlines()[-1]
        evaluation = request.result(Verdict.harness_error, f"our own defect: {last}", output=text)
    return replace(evaluation, wall_s=time.monotonic() - started)


@dataclass(frozen=True)
class Request:
    """A validated EvaluationSpec with all it refers to."""

    spec: EvaluationSpec
    problem: Problem
    cases: tuple[Case, ...]
    device: DeviceInfo
    cancel: threading.Event | None
    progress: Progress

    @classmethod
    def of(
        cls, spec: EvaluationSpec, cancel: threading.Event | None, progress: Progress
    ) -> Request:
        problem = known_problem(spec.problem)
        kind = device_kind(spec.device)
        offered = {"host": ["cpp", "triton"], "cuda": ["triton"]}[kind]
        if spec.language not in offered:
            remedy = f"Use one of: {', '.join(offered)}."
            raise SpecError("language", f"{spec.language!r} does not run on {kind}.", remedy)
        sets = problem.case_sets(kind)
        if spec.case_set not in sets:
            remedy = f"Use one of: {', '.join(sets)}."
            raise SpecError("case_set", f"{spec.case_set!r} is not offered on {kind}.", remedy)
        chosen = _chosen(problem, spec)
        cases = tuple(sorted(chosen, key=lambda case: case.scored))
        return cls(spec, problem, cases, device_info(spec.device), cancel, progress)

    def result(
        self, verdict: Verdict, reason: str, *, output: str = "", compile_output: str = ""
    ) -> Evaluation:
        """A result without cases: it ended before any was run."""
        return Evaluation(
            verdict=verdict,
            reason=reason,
            cases=(),
            integrity=(),
            timer=TIMERS[self.device.kind] if self.spec.timed else NOT_TIMED,
            device=self.device,
            versions=machine_versions(),
            source_sha256=hashlib.sha256(self.spec.source.encode()).hexdigest(),
            isolation=sandbox.isolation().sentence,
            output=output,
            compile_output=compile_output,
        )


def _chosen(problem: Problem, spec: EvaluationSpec) -> tuple[Case, ...]:
    """The cases that the request names, all of its set when it names none; raises SpecError."""
    offered = {case.name: case for case in problem.cases_in(spec.case_set)}
    unknown = [name for name in spec.cases if name not in offered]
    if unknown:
        words = f"case set {spec.case_set!r} of {problem.slug} has no case {unknown[0]!r}."
        raise SpecError("cases", words, f"Use some of: {', '.join(offered)}.")
    return tuple(case for name, case in offered.items() if not spec.cases or name in spec.cases)


def _evaluate(request: Request) -> Evaluation:
    build = WorkFolder()
    try:
        for kind in kinds(request):
            keeper.prepare(kind, environment_of(kind))  # torch is imported while g++ compiles
        request.progress("compiling")
        compiled = _compile(request, build.path)
        if not compiled.ok:
            failed = request.result(
                Verdict.compile_error, compiled.reason, compile_output=compiled.output
            )
            return replace(failed, versions=failed.versions | compiled.versions)
        return _measured(request, compiled)
    finally:
        build.remove()


def _measured(request: Request, compiled: CompileResult) -> Evaluation:
    """A zygote that dies under an evaluation may be an accident; twice under one is no accident."""
    try:
        return _measure(request, compiled)
    except keeper.ZygoteDied:
        request.progress("starting again")
    try:
        return _measure(request, compiled)
    except keeper.ZygoteDied as died:
        if died.role != "candidate":
            raise
        reason = "twice it took down the process that had started it"
        return request.result(
            Verdict.tampered, reason, output=died.words, compile_output=compiled.output
        )


def _compile(request: Request, folder: Path) -> CompileResult:
    language = languages.get(request.spec.language)
    try:
        return language.compile(
            request.spec.source, folder, request.spec.limits, cancel=request.cancel
        )
    except MissingCompiler as error:
        raise SpecError("language", str(error), error.remedy) from error


@dataclass
class Finding:
    """What the session and its processes left behind."""

    cases: list[CaseResult] = field(default_factory=list)
    session: Session | None = None
    failure: CaseFailed | None = None
    candidate: Ending | None = None
    same_artifact: bool = False
    state_after: dict[str, str] = field(default_factory=dict)


def _measure(request: Request, compiled: CompileResult) -> Evaluation:
    """Everything that uses the device: a fresh child beside the trusted two, under its lease."""
    assert compiled.artifact is not None
    request.progress("waiting for the device")
    finding = Finding()
    with ExitStack() as held:
        zygotes = [
            held.enter_context(keeper.borrowed(kind, environment_of(kind), request.cancel))
            for kind in kinds(request)
        ]
        held.enter_context(lease(request.device.uuid, cancel=request.cancel))
        *trusted, theirs = zygotes
        folder = held.enter_context(theirs.folder.subfolder())
        artifact = folder / compiled.artifact.name
        content = compiled.artifact.read_bytes()
        artifact.write_bytes(content)
        with ExitStack() as running:
            ours = [running.enter_context(zygote.resident()) for zygote in trusted]
            candidate = running.enter_context(_forked(theirs, folder, request, finding))
            children = Children(ours[0], ours[1] if request.spec.timed else None, candidate)
            session = finding.session = _session(request, children)
            _examine(request, session, str(artifact), finding)
            finding.state_after = state_after(request.device)
            request.progress("clearing up")
        finding.same_artifact = artifact.is_file() and artifact.read_bytes() == content
    return _conclude(request, compiled, finding)


def _session(request: Request, children: Children) -> Session:
    watch = Watch(time.monotonic() + request.spec.limits.deadline_s, request.cancel)
    kind, roofs = request.device.kind, ceilings.known(request.device)
    around = neighbours_of(kind, request.device.uuid)
    return Session(request.problem, kind, children, watch, request.progress, around, roofs)


@contextmanager
def _forked(zygote: Zygote, folder: Path, request: Request, finding: Finding) -> Iterator[Child]:
    """The candidate's process: fresh, limited, and how it ended is kept."""
    limits = request.spec.limits
    rlimits = {
        "cpu_s": int(limits.deadline_s * cpu_count()) + 10,
        "address_space_bytes": address_space(request),
    }
    child = zygote.fork(folder, rlimits, limits.output_bytes)
    try:
        yield child
    finally:
        finding.candidate = child.end()


def _examine(request: Request, session: Session, artifact: str, finding: Finding) -> None:
    """Unscored cases first: they are small, and nothing is timed before they pass."""
    try:
        session.start(request.spec.language, artifact, request.cases)
        for case in request.cases:
            clean = all(result.verdict is Verdict.passed for result in finding.cases)
            timed = request.spec.timed and case.scored
            result = session.examine(case, request.spec.pairs if timed and clean else None)
            if timed and not clean and result.verdict is Verdict.passed:
                reason = "checked but not timed: another case failed"
                result = replace(result, verdict=Verdict.unmeasured, reason=reason)
            finding.cases.append(result)
    except CaseFailed as failed:
        finding.failure = failed
    except FatalCase as fatal:
        finding.cases.append(fatal.result)


def _conclude(request: Request, compiled: CompileResult, finding: Finding) -> Evaluation:
    assert finding.session is not None
    assert finding.candidate is not None
    verdict, reason = _verdict(finding)
    done = {result.case for result in finding.cases}
    if finding.failure is None:
        finding.cases += [_not_run(case) for case in request.cases if case.name not in done]
    base = request.result(verdict, reason, output=finding.candidate.output)
    details = base.device.details | finding.state_after
    return replace(
        base,
        device=replace(base.device, details=details),
        cases=tuple(finding.cases),
        integrity=_integrity(finding, finding.session, finding.candidate),
        versions=base.versions | compiled.versions | finding.session.versions,
        compile_output=compiled.output,
    )


def _verdict(finding: Finding) -> tuple[Verdict, str]:
    if finding.failure is not None:
        return finding.failure.verdict, finding.failure.reason
    failed = [result for result in finding.cases if result.verdict is not Verdict.passed]
    if not failed:
        return Verdict.passed, ""
    worst = min(failed, key=lambda result: SEVERITY.index(result.verdict))
    return worst.verdict, worst.reason


def _not_run(case: Case) -> CaseResult:
    return CaseResult(
        case=case.name,
        verdict=Verdict.unmeasured,
        reason="not run: the candidate ended on an earlier case",
        scored=case.scored,
        dtype=case.dtype,
        flops=case.flops,
        bytes_moved=case.bytes_moved,
    )


def _integrity(finding: Finding, session: Session, ending: Ending) -> tuple[IntegrityCheck, ...]:
    """Only what was really done, each with its evidence."""
    evidence, checks = session.evidence, []
    unchanged = all(case.verdict is not Verdict.mutated_input for case in finding.cases)
    if evidence.judged:
        judged = f"{evidence.judged} outputs judged; the seed never left the referee"
        poison = "NaN before each check and each timed pair"
        checks += [
            IntegrityCheck("fresh_inputs", True, judged),
            IntegrityCheck("outputs_poisoned", True, poison),
            IntegrityCheck("inputs_unchanged", unchanged, "compared bit by bit with the originals"),
        ]
    if evidence.repeats:
        checks.append(IntegrityCheck("repeat_agrees", True, f"{evidence.repeats} cases run twice"))
    if evidence.timed_verified:
        detail = f"{evidence.timed_verified} timed outputs, chosen at random, judged afterwards"
        checks.append(IntegrityCheck("timed_output_verified", True, detail))
    if evidence.clock_excess_us:
        most = max(0.0, *evidence.clock_excess_us)
        detail = f"the parent's clock saw at most {most:.0f} µs more"
        checks += [IntegrityCheck("two_clocks", True, detail), _physics(session)]
    if evidence.idle_us:
        detail = f"it worked {max(evidence.idle_us):.0f} µs after a timed call had returned"
        checks.append(IntegrityCheck("idle_between_calls", True, detail))
    if evidence.sightings:
        checks.append(_alone(evidence))
    if evidence.flush_ratios:
        detail = f"the flush before its calls took {max(evidence.flush_ratios):.2f} times as long"
        checks.append(IntegrityCheck("device_steady", True, f"{detail} as before"))
    detail = "what was loaded was built from this source and is unchanged on disk"
    checks.append(IntegrityCheck("source_hash", finding.same_artifact, detail))
    clean = ending.leftover == 0
    detail = "no process left" if clean else f"{ending.leftover} left-over processes were killed"
    checks.append(IntegrityCheck("process_tree_clean", clean, detail))
    detail = f"{ending.dropped_bytes} bytes of output dropped"
    checks.append(IntegrityCheck("output_capped", not ending.dropped_bytes, detail))
    return tuple(checks)


def _alone(evidence: Evidence) -> IntegrityCheck:
    """The least alone that any timed case was; on the host it is evidence and decides nothing."""
    worst = max(
        evidence.sightings, key=lambda seen: (seen.alone is False, not seen.alone, seen.share)
    )
    detail = worst.words
    if evidence.repeated:
        detail += f"; {evidence.repeated} measurements discarded and repeated whole"
    if worst.alone is None:
        return IntegrityCheck.not_judged("device_alone", detail)
    return IntegrityCheck("device_alone", worst.alone, detail)


def _physics(session: Session) -> IntegrityCheck:
    """Whether the timed cases took at least what the roofs of the device demand."""
    found = session.evidence.physics
    if session.ceilings is None:
        detail = "the ceilings of this device are not measured yet"
        return IntegrityCheck.not_judged("physics", detail)
    possible = all(finding.possible for finding in found)
    detail = "; ".join(finding.words for finding in found) or "not judged: no case was timed"
    return IntegrityCheck("physics", possible, detail)


def kinds(request: Request) -> tuple[Kind, ...]:
    """The zygotes an evaluation needs, in order: referee, baseline where it times, candidate.

    Triton on the host runs in its interpreter.
    """
    device = request.device.uuid if request.device.kind == "cuda" else ""
    interpreted = request.spec.language == "triton" and not device
    interpreted = interpreted and "triton" in request.spec.source
    roles = ("referee", "baseline") if request.spec.timed else ("referee",)
    return *(Kind(role, device) for role in roles), Kind("candidate", device, interpreted)


def address_space(request: Request) -> int | None:
    """The candidate's own memory beside the shared tensors. CUDA reserves address space freely."""
    if request.device.kind == "cuda":
        return None
    shared = max(buffers.set_bytes(request.problem, case) for case in request.cases)
    return request.spec.limits.memory_bytes + shared * max(POOL_SETS)


def environment_of(kind: Kind) -> dict[str, str]:
    """Equal for both sides. Passive waiting: an idle process must not spin beside the timed one."""
    threads = str(cpu_count())
    environment = {"CUDA_VISIBLE_DEVICES": kind.device}
    if kind.interpreted:
        environment["TRITON_INTERPRET"] = "1"
    if kind.role == "baseline" and kind.device:
        environment |= compiler_caches()
    return environment | {
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": "1",  # numpy's pool would start threads before the fork
        "OMP_WAIT_POLICY": "passive",
        "OMP_PLACES": "threads",
        "OMP_PROC_BIND": "close",  # two threads on one core measure the scheduler, not the kernel
        "GOMP_SPINCOUNT": "0",
        "OMP_DYNAMIC": "false",
        "MKL_DYNAMIC": "false",
    }


def compiler_caches() -> dict[str, str]:
    """Kept between evaluations, for our own baselines only: a candidate never sees them."""
    folder = cache_folder()
    return {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
        "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # CUDA itself, when asked, refuses forks
        "TORCHINDUCTOR_COMPILE_THREADS": "1",  # no pool of workers in a child that is killed
        "TRITON_CACHE_DIR": str(folder / "triton"),
    }


def machine_versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "kernel": os.uname().release,
        "machine": platform.machine(),
    }
