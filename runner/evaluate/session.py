"""One evaluation's dialogue of the parent with its children: check each case, then time it.

Runs in the parent. Owns the order of steps and what each answer means; every failing kernel
becomes a CaseResult here. It starts no process and never sees a tensor.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from kernels.catalog import Case, Problem
from runner.evaluate import buffers, physics
from runner.evaluate.buffers import Layout
from runner.evaluate.channel import BadMessage, Message
from runner.evaluate.devices import cache_capacities, cpu_count, cpu_information
from runner.evaluate.keeper import (
    Child,
    ChildEnded,
    DeadlinePassed,
    Question,
    Reply,
    Watch,
    exit_words,
)
from runner.evaluate.neighbours import Neighbours, Sighting
from runner.evaluate.timer import Timer
from runner.results import CaseResult, Ceiling, Timing, Verdict
from runner.wire import to_json

CHECKED_SETS = 2
POOL_BYTES = 64 << 20  # a pool of sets larger than the private caches of most machines
POOL_SETS = (3, 5)
PATIENCE_S = 300.0  # for one answer of ours; beyond it the harness is at fault, not the kernel
TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int64": "int64"}


class CaseFailed(Exception):
    """The candidate's fault on the case at hand; `fatal` when its process is gone for good."""

    def __init__(
        self,
        verdict: Verdict,
        reason: str,
        *,
        fatal: bool = False,
        errors: Message | None = None,
    ) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.fatal, self.errors = verdict, reason, fatal, errors


class FatalCase(Exception):
    """The case that ended the candidate's process; no other case can run after it."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(result.reason)
        self.result = result


class TooSlow(RuntimeError):
    """A process of ours did not answer within PATIENCE_S."""


@dataclass(frozen=True)
class Children:
    """The processes of an evaluation below the parent; no baseline where nothing is timed."""

    referee: Child
    baseline: Child | None
    candidate: Child


@dataclass
class Evidence:
    """What was really done, for the integrity checks."""

    judged: int = 0
    repeats: int = 0
    timed_verified: int = 0
    clock_excess_us: list[float] = field(default_factory=list)
    idle_us: list[float] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    repeated: int = 0  # measurements discarded since others used the device
    flush_ratios: list[float] = field(default_factory=list)
    physics: list[physics.Finding] = field(default_factory=list)
    interpreted: list[str] = field(default_factory=list)
    refused_baselines: dict[str, str] = field(default_factory=dict)


class Session:
    """`kind` is the device's; `watch` bounds the candidate's time, not the referee's.

    `ceilings` are None where they were never measured: an evaluation does not wait for that.
    """

    def __init__(
        self,
        problem: Problem,
        kind: str,
        children: Children,
        watch: Watch,
        progress: Callable[[str], None],
        neighbours: Neighbours,
        ceilings: Sequence[Ceiling] | None = None,
    ) -> None:
        self.problem, self.kind, self.progress = problem, kind, progress
        self.children, self.watch = children, watch
        self.neighbours = neighbours
        self.ceilings, self.roofs = ceilings, physics.Roofs((), {})
        self.evidence = Evidence()
        self.baselines: list[str] = []
        self.wait_us = 0.0  # on a GPU before a call, set by the timer
        self.flush_ns: int | None = None  # a GPU's flush before the candidate was loaded
        self.versions: dict[str, str] = {}
        self.random = random.SystemRandom()

    def start(self, language: str, artifact: str, cases: Sequence[Case]) -> None:
        """Start the processes' work; the candidate's code is loaded. Raises CaseFailed."""
        common = {"do": "start", "threads": cpu_count(), "kind": self.kind}
        given = language == "cpp"
        dtypes = dict.fromkeys(case.dtype for case in cases)
        symbols = {
            self.problem.cpp_symbol(dtype): self.problem.cpp_prototype(dtype) for dtype in dtypes
        }
        self.progress("loading")
        ours = {"problem": self.problem.slug, "given_outputs": given, **common}
        theirs = {"language": language, "artifact": artifact, "symbols": symbols, **common}
        with self._blamed("while starting"):
            starting = self.children.candidate.post(theirs, self.watch)
        opponents = self.children.baseline
        opening = opponents.post(ours, self._patience()) if opponents else None
        hello = self.referee(ours)
        self.versions = hello["versions"]
        if opponents and opening:
            self._answer(opponents, opening)
        with self._blamed("while starting"):
            self._succeeded(self.children.candidate.answer(starting, self.watch), "while starting")
        if opponents:
            loaded = self._ours(opponents, {**ours, "do": "load"}).message
            self.baselines, self.flush_ns = loaded["baselines"], loaded["flush_ns"]
        if self.ceilings is not None:
            self.roofs = self._roofs(self.ceilings, hello["l2_bytes"])
        self._candidate({**theirs, "do": "load"}, "while loading")

    def examine(self, case: Case, pairs: int | None) -> CaseResult:
        """Check a case; if it passes and `pairs` is given, time it. Raises FatalCase."""
        if case.scored and self.evidence.interpreted:
            reason = self._interpreted_reason() if pairs is not None else self._skipped_reason()
            return self._result(case, Verdict.unmeasured, reason)
        try:
            layout = self._open(case, pairs is not None)
            errors = self._check(case)
            timing = None
            if pairs is not None and self.evidence.interpreted:
                raise CaseFailed(Verdict.unmeasured, self._interpreted_reason(), errors=errors)
            if pairs is not None:
                self.progress(f"timing {case.name}")
                timing = Timer(self, case, layout).time(pairs)
                self._require_possible(case, timing, errors)
        except CaseFailed as failed:
            result = self._result(case, failed.verdict, failed.reason, failed.errors)
            if failed.fatal:
                raise FatalCase(result) from failed
            return result
        return self._result(case, Verdict.passed, "", errors, timing)

    def _result(
        self,
        case: Case,
        verdict: Verdict,
        reason: str,
        errors: Message | None = None,
        timing: Timing | None = None,
    ) -> CaseResult:
        return CaseResult(
            case=case.name,
            verdict=verdict,
            reason=reason,
            scored=case.scored,
            dtype=case.dtype,
            max_rel_error=errors["max_rel_error"] if errors else None,
            norm_error=errors["norm_error"] if errors else None,
            flops=case.flops,
            bytes_moved=case.bytes_moved,
            timing=timing,
        )

    def _interpreted_reason(self) -> str:
        cases = ", ".join(self.evidence.interpreted)
        return f"Triton kernels need a GPU to be timed; checked in Triton's interpreter on {cases}"

    def _skipped_reason(self) -> str:
        cases = ", ".join(self.evidence.interpreted)
        return f"not checked: too large for Triton's interpreter, which checked {cases}"

    def _open(self, case: Case, timed: bool) -> Layout:
        """Fresh shared memory and fresh inputs for a case, mapped on both sides."""
        sets = CHECKED_SETS
        if timed:
            affordable = POOL_BYTES // buffers.set_bytes(self.problem, case)
            sets = max(POOL_SETS[0], min(POOL_SETS[1], affordable))
        layout = buffers.plan(self.problem, case, sets, self.kind)
        message = {
            "do": "open",
            "case": case.name,
            "layout": to_json(layout),
            "symbol": self.problem.cpp_symbol(case.dtype),
            "sizes": [case.dims[name] for name in self.problem.dimension_names],
        }
        self.referee(message)
        descriptors = self.children.referee.channel.take_descriptors()
        half = len(descriptors) // 2
        try:
            if self.children.baseline:
                self._ours(self.children.baseline, message, descriptors[half:])
            self._candidate(message, self._named(case, "while opening"), descriptors[:half])
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return layout

    def _check(self, case: Case) -> Message:
        """Two fresh inputs, and the first of them twice. Returns the worst errors seen."""
        self.progress(f"checking {case.name}")
        replies = [self._run_and_judge(case, 0)]
        if not self.evidence.interpreted:
            replies += [self._run_and_judge(case, number) for number in range(1, CHECKED_SETS)]
            replies.append(self._run_and_judge(case, 0))
            self.evidence.repeats += 1
        names = ("max_rel_error", "norm_error")
        return {
            name: max((reply[name] for reply in replies if reply[name] is not None), default=None)
            for name in names
        }

    def _run_and_judge(self, case: Case, number: int) -> Message:
        self.referee({"do": "poison", "set": number})
        ran = self.run(case, number, "while checking", dirty=True).message
        if ran.get("launches") and case.name not in self.evidence.interpreted:
            self.evidence.interpreted.append(case.name)
        return self.judge(case, number, keep=number == 0)

    def run(self, case: Case, number: int, occasion: str, *, dirty: bool = False) -> Reply:
        """One call of the candidate; its answer is in shared memory when the reply arrives."""
        message = self._run_message("", number, dirty)
        reply = self._candidate(message, self._named(case, occasion))
        self._require_shapes(case, reply.message.get("returned"))
        return reply

    def _run_message(self, name: str, number: int, dirty: bool) -> Message:
        return {"do": "run", "name": name, "set": number, "dirty": dirty, "wait_us": self.wait_us}

    def judge(self, case: Case, number: int, *, keep: bool) -> Message:
        reply = self.referee({"do": "judge", "set": number, "keep": keep})
        self.evidence.judged += 1
        self.require_passed(case, reply)
        return reply

    def require_passed(self, case: Case, reply: Message) -> None:
        if reply["verdict"] != Verdict.passed:
            reason = self._named(case, reply["reason"])
            errors = reply if "norm_error" in reply else None
            raise CaseFailed(Verdict(reply["verdict"]), reason, errors=errors)

    def _require_shapes(self, case: Case, returned: object) -> None:
        """What a Python candidate returned must have exactly the contract's types and shapes."""
        device = "cpu" if self.kind == "host" else "cuda:0"
        expected = [
            ["Tensor", TORCH_DTYPES[case.dtype_of(a)], device, list(case.shape(a)), True]
            for a in self.problem.outputs
        ]
        if returned is None or returned == expected:
            return
        if not isinstance(returned, list) or len(returned) != len(expected):
            count = len(returned) if isinstance(returned, list) else 0
            reason = f"run returned {count} values, expected {len(expected)}"
            raise CaseFailed(Verdict.wrong_shape, self._named(case, reason))
        if not all(isinstance(got, list) and len(got) == len(expected[0]) for got in returned):
            raise CaseFailed(
                Verdict.tampered, self._named(case, "it described no tensor"), fatal=True
            )
        for argument, want, got in zip(self.problem.outputs, expected, returned, strict=True):
            if want[0] == got[0] and want[3] != got[3]:
                reason = f"{argument.name} has shape {got[3]}, expected {want[3]}"
                raise CaseFailed(Verdict.wrong_shape, self._named(case, reason))
            if want[:4] == got[:4]:
                reason = f"{argument.name} is not contiguous, the contract is row-major"
                raise CaseFailed(Verdict.wrong_shape, self._named(case, reason))
            if want != got:
                have = f"{got[0]} {got[1]} {got[2]}".strip()
                reason = f"{argument.name} is {have}, expected {want[0]} {want[1]} {want[2]}"
                raise CaseFailed(Verdict.wrong_dtype, self._named(case, reason))

    def _roofs(self, ceilings: Sequence[Ceiling], l2_bytes: int | None) -> physics.Roofs:
        if self.kind == "cuda":
            return physics.roofs("cuda", ceilings, {2: l2_bytes} if l2_bytes else {})
        flags = cpu_information("flags") or cpu_information("Features") or ""
        return physics.roofs("host", ceilings, cache_capacities(), frozenset(flags.split()))

    def _require_possible(self, case: Case, timing: Timing, errors: Message) -> None:
        if self.ceilings is None:
            return
        found = physics.examine(case, timing, self.roofs)
        self.evidence.physics.append(found)
        if not found.possible:
            reason = f"{self.problem.slug} {found.words}"
            raise CaseFailed(Verdict.impossible, reason, errors=errors)

    def own(self) -> list[int]:
        """The roots of the trees that work for this evaluation."""
        children = (self.children.referee, self.children.baseline, self.children.candidate)
        return [child.zygote.process.pid for child in children if child]

    def run_baseline(self, name: str, number: int, *, dirty: bool = False) -> Reply:
        opponents = self.children.baseline
        assert opponents is not None, "only what is timed has a baseline"
        question = opponents.post(self._run_message(name, number, dirty), self._patience())
        return self._answer(opponents, question, refusable=True)

    def failed(
        self, verdict: Verdict, case: Case, reason: str, *, fatal: bool = False
    ) -> CaseFailed:
        return CaseFailed(verdict, self._named(case, reason), fatal=fatal)

    def _named(self, case: Case, reason: str) -> str:
        return f"{self.problem.slug} {case.name}: {reason}"

    def _patience(self) -> Watch:
        return Watch(time.monotonic() + PATIENCE_S, self.watch.cancel)

    def referee(self, message: Message) -> Message:
        return self._ours(self.children.referee, message).message

    def _ours(self, child: Child, message: Message, descriptors: Sequence[int] = ()) -> Reply:
        return self._answer(child, child.post(message, self._patience(), descriptors))

    def _answer(self, child: Child, question: Question, *, refusable: bool = False) -> Reply:
        """What a process of ours says. Its time is not charged to the candidate's deadline."""
        role = child.zygote.kind.role
        try:
            reply = child.answer(question, self._patience())
        except DeadlinePassed:
            raise TooSlow(f"no answer of the {role} in {PATIENCE_S:g} s") from None
        except ChildEnded as ended:
            output = child.drain.text.strip()[-2000:]
            raise RuntimeError(f"the {role} was {ended}: {output}") from None
        self.watch.deadline += reply.elapsed_ns / 1e9
        if reply.message.get("failed") and not refusable:
            raise RuntimeError(f"the {role} failed: {reply.message['text']}")
        return reply

    def _candidate(self, message: Message, occasion: str, descriptors: Sequence[int] = ()) -> Reply:
        """Ask the candidate; everything that goes wrong there is its fault."""
        with self._blamed(occasion):
            return self._succeeded(
                self.children.candidate.ask(message, self.watch, descriptors), occasion
            )

    def _succeeded(self, reply: Reply, occasion: str) -> Reply:
        if failed := reply.message.get("failed"):
            raise _reported(str(failed), reply.message, occasion)
        return reply

    @contextlib.contextmanager
    def _blamed(self, occasion: str) -> Iterator[None]:
        try:
            yield
        except ChildEnded as ended:
            verdict, reason = self._ending(ended.status)
            raise CaseFailed(verdict, f"{occasion}: {reason}", fatal=True) from None
        except DeadlinePassed:
            reason = f"{occasion}: the deadline passed without an answer"
            raise CaseFailed(Verdict.timeout, reason, fatal=True) from None
        except BadMessage as error:
            reason = f"{occasion}: its result channel carried {error}"
            raise CaseFailed(Verdict.tampered, reason, fatal=True) from None

    def _ending(self, status: int) -> tuple[Verdict, str]:
        """A SIGKILL we did not send is the system's out-of-memory killer; SIGXCPU our CPU limit."""
        self.children.candidate.drain.rest()
        words = exit_words(status)
        if "bad_alloc" in self.children.candidate.drain.text:
            return Verdict.out_of_memory, f"std::bad_alloc, {words}"
        if status == -signal.SIGXCPU:
            return Verdict.timeout, f"its processor time was used up, {words}"
        killed = status == -signal.SIGKILL
        return (Verdict.out_of_memory if killed else Verdict.crashed), words


def _reported(kind: str, message: Message, occasion: str) -> CaseFailed:
    """What the candidate's process said about itself. After an exception its state is unknown."""
    text = str(message.get("text", ""))
    if kind == "missing_symbol":
        return CaseFailed(Verdict.compile_error, text, fatal=True)
    if kind == "too_large":
        return CaseFailed(Verdict.unmeasured, f"{occasion}: {text}")
    if kind == "memory":
        return CaseFailed(Verdict.out_of_memory, f"{occasion}: {text}", fatal=True)
    return CaseFailed(Verdict.crashed, f"{occasion}: {text}", fatal=True)
