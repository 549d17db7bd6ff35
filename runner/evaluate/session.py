"""One evaluation's dialogue between parent, referee and candidate: check each case, then time it.

Runs in the parent. Owns the order of steps and what each answer means; every failing kernel
becomes a CaseResult here. It starts no process and never sees a tensor.
"""

from __future__ import annotations

import math
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernels.catalog import Case, Problem
from runner.evaluate import buffers, statistics
from runner.evaluate.buffers import Layout
from runner.evaluate.channel import BadMessage, Message
from runner.evaluate.devices import cpu_count
from runner.evaluate.keeper import Child, ChildEnded, DeadlinePassed, Reply, Watch
from runner.results import CaseResult, Timing, Verdict
from runner.wire import to_json

CHECKED_SETS = 2
WARM_UP_CALLS = 3
MINIMUM_PAIRS = 10
VERIFIED_PAIRS = 2
POOL_BYTES = 128 << 20  # a pool of sets larger than the private caches of most machines
POOL_SETS = (3, 8)
CLOCK_SLACK_NS = 150_000
CLOCK_SLACK_RATIO = 0.1


class CaseFailed(Exception):
    """The candidate's fault on the case at hand; `fatal` when its process is gone for good."""

    def __init__(self, verdict: Verdict, reason: str, *, fatal: bool = False) -> None:
        super().__init__(reason)
        self.verdict, self.reason, self.fatal = verdict, reason, fatal


@dataclass
class Evidence:
    """What was really done, for the integrity checks."""

    judged_sets: int = 0
    repeats: int = 0
    timed_verified: int = 0
    clock_excess_us: list[float] = field(default_factory=list)


@dataclass
class PairTimes:
    """Times of one case in microseconds, pair by pair, by the own and by the parent's clock."""

    baseline_us: list[float] = field(default_factory=list)
    candidate_us: list[float] = field(default_factory=list)
    baseline_outside_us: list[float] = field(default_factory=list)
    candidate_outside_us: list[float] = field(default_factory=list)


class Session:
    def __init__(
        self,
        problem: Problem,
        referee: Child,
        candidate: Child,
        watch: Watch,
        progress: Callable[[str], None],
    ) -> None:
        self.problem, self.referee, self.candidate = problem, referee, candidate
        self.watch, self.progress = watch, progress
        self.evidence = Evidence()
        self.baselines: list[str] = []
        self.versions: dict[str, str] = {}
        self.random = random.SystemRandom()

    def start(self, language: str, artifact: str, cases: Sequence[Case]) -> None:
        """Start both processes' work; the candidate's code is loaded. Raises CaseFailed."""
        threads = cpu_count()
        hello = self._referee({"problem": self.problem.slug, "threads": threads})
        self.baselines, self.versions = hello["baselines"], hello["versions"]
        dtypes = dict.fromkeys(case.dtype for case in cases)
        symbols = {
            self.problem.cpp_symbol(dtype): self.problem.cpp_prototype(dtype) for dtype in dtypes
        }
        message = {
            "language": language,
            "artifact": artifact,
            "symbols": symbols,
            "threads": threads,
        }
        self._candidate(message, "while loading")

    def examine(self, case: Case, pairs: int | None) -> CaseResult:
        """Check a case; if it passes and `pairs` is given, time it."""
        try:
            layout = self._open(case, pairs is not None)
            errors = self._check(case)
            timing = self._time(case, layout, pairs) if pairs is not None else None
        except CaseFailed as failed:
            result = self._result(case, failed.verdict, failed.reason)
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

    def _open(self, case: Case, timed: bool) -> Layout:
        """Fresh shared memory and fresh inputs for a case, mapped on both sides."""
        sets = CHECKED_SETS
        if timed:
            affordable = POOL_BYTES // buffers.set_bytes(self.problem, case)
            sets = max(POOL_SETS[0], min(POOL_SETS[1], affordable))
        layout = buffers.plan(self.problem, case, sets)
        shared, private = buffers.create(layout, "shared"), buffers.create(layout, "private")
        message = {
            "do": "open",
            "case": case.name,
            "layout": to_json(layout),
            "symbol": self.problem.cpp_symbol(case.dtype),
            "sizes": [case.dims[name] for name in self.problem.dimension_names],
        }
        try:
            self._referee(message, [shared, private])
            self._candidate(message, f"while opening {case.name}", [shared])
        finally:
            os.close(shared)
            os.close(private)
        return layout

    def _check(self, case: Case) -> Message:
        """Two fresh inputs, and the first of them twice. Returns the worst errors seen."""
        self.progress(f"checking {case.name}")
        replies = [self._run_and_judge(case, number) for number in range(CHECKED_SETS)]
        replies.append(self._run_and_judge(case, 0))
        self.evidence.repeats += 1
        names = ("max_rel_error", "norm_error")
        return {
            name: max((reply[name] for reply in replies if reply[name] is not None), default=None)
            for name in names
        }

    def _run_and_judge(self, case: Case, number: int) -> Message:
        self._referee({"do": "poison", "set": number})
        self._candidate({"do": "run", "set": number}, f"on {case.name}")
        return self._judge(case, number, keep=number == 0)

    def _judge(self, case: Case, number: int, *, keep: bool) -> Message:
        published = self._candidate({"do": "publish", "set": number}, f"on {case.name}").message
        self._require_shapes(case, published.get("returned"))
        reply = self._referee({"do": "judge", "set": number, "keep": keep})
        self.evidence.judged_sets += 1
        if reply["verdict"] != Verdict.passed:
            raise CaseFailed(Verdict(reply["verdict"]), self._named(case, reply["reason"]))
        return reply

    def _require_shapes(self, case: Case, returned: object) -> None:
        """What a Python candidate returned must have exactly the contract's types and shapes."""
        if returned is None:
            return
        expected = [
            ["Tensor", TORCH_DTYPES[case.dtype_of(a)], "cpu", list(case.shape(a))]
            for a in self.problem.outputs
        ]
        if returned == expected:
            return
        if not isinstance(returned, list) or len(returned) != len(expected):
            count = len(returned) if isinstance(returned, list) else 0
            reason = f"run returned {count} values, expected {len(expected)}"
            raise CaseFailed(Verdict.wrong_shape, self._named(case, reason))
        for argument, want, got in zip(self.problem.outputs, expected, returned, strict=True):
            if want[3] != got[3] and got[0] == "Tensor":
                reason = f"{argument.name} has shape {got[3]}, expected {want[3]}"
                raise CaseFailed(Verdict.wrong_shape, self._named(case, reason))
            if want != got:
                have = f"{got[0]} {got[1]} {got[2]}".strip()
                reason = f"{argument.name} is a {have}, expected {want[0]} {want[1]} on {want[2]}"
                raise CaseFailed(Verdict.wrong_dtype, self._named(case, reason))

    def _time(self, case: Case, layout: Layout, pairs: int) -> Timing:
        self.progress(f"timing {case.name}")
        baseline = self._fastest_baseline(layout)
        times = PairTimes()
        pairs = self._affordable(case, max(pairs, MINIMUM_PAIRS), baseline)
        verified = set(self.random.sample(range(pairs), VERIFIED_PAIRS))
        first = self.random.randrange(layout.sets)
        for pair in range(pairs):
            number = (first + pair) % layout.sets
            self._referee({"do": "poison", "set": number})
            self._pair(case, baseline, number, times)
            if pair in verified:
                self._judge(case, number, keep=False)
                self.evidence.timed_verified += 1
        for number in range(layout.sets):
            reply = self._referee({"do": "inputs", "set": number})
            if reply["verdict"] != Verdict.passed:
                raise CaseFailed(Verdict(reply["verdict"]), self._named(case, reply["reason"]))
        self._require_clocks(case, times)
        return statistics.timing(baseline, times.baseline_us, times.candidate_us)

    def _pair(self, case: Case, baseline: str, number: int, times: PairTimes) -> None:
        """One call of each, in random order: a fixed order is biased."""
        sides = ["baseline", "candidate"]
        self.random.shuffle(sides)
        for side in sides:
            if side == "baseline":
                message = {"do": "baseline", "set": number, "name": baseline}
                reply = self.referee.ask(message, self.watch)
                own, outside = times.baseline_us, times.baseline_outside_us
            else:
                reply = self._candidate({"do": "run", "set": number}, f"timing {case.name}")
                own, outside = times.candidate_us, times.candidate_outside_us
            own.append(_nanoseconds(reply.message) / 1000)
            outside.append(reply.elapsed_ns / 1000)

    def _fastest_baseline(self, layout: Layout) -> str:
        """Warm every baseline up and take the fastest: the strongest opponent, by name."""
        best: dict[str, float] = {}
        for name in self.baselines:
            for call in range(WARM_UP_CALLS):
                message = {"do": "baseline", "set": call % layout.sets, "name": name}
                reply = self._referee(message)
                best[name] = min(best.get(name, math.inf), reply["ns"])
        return min(best, key=best.__getitem__)

    def _affordable(self, case: Case, pairs: int, baseline: str) -> int:
        """Warm the candidate up; fewer pairs where the deadline allows no more, at least ten."""
        slowest = 1e-6
        for _ in range(WARM_UP_CALLS - 1):
            reply = self._candidate({"do": "run", "set": 0}, f"timing {case.name}")
            slowest = max(slowest, reply.elapsed_ns / 1e9)
        return max(MINIMUM_PAIRS, min(pairs, int(self.watch.left() / 2 / slowest)))

    def _require_clocks(self, case: Case, times: PairTimes) -> None:
        """The parent's clock around a round trip bounds what the candidate's own clock may hide.

        The round trip costs the same on the baseline's side; what the candidate's takes beyond
        that is time its own clock did not own up to.
        """
        overhead = _median(_differences(times.baseline_outside_us, times.baseline_us))
        outside = _median(times.candidate_outside_us)
        hidden = _median(_differences(times.candidate_outside_us, times.candidate_us)) - overhead
        self.evidence.clock_excess_us.append(hidden)
        if hidden > CLOCK_SLACK_NS / 1000 + CLOCK_SLACK_RATIO * outside:
            reason = f"its own clock hides {hidden:.0f} µs of {outside:.0f} µs seen from outside"
            raise CaseFailed(Verdict.timing_disputed, self._named(case, reason))

    def _named(self, case: Case, reason: str) -> str:
        return f"{self.problem.slug} {case.name}: {reason}"

    def _referee(self, message: Message, descriptors: Sequence[int] = ()) -> Message:
        return self.referee.ask(message, self.watch, descriptors).message

    def _candidate(self, message: Message, occasion: str, descriptors: Sequence[int] = ()) -> Reply:
        """Ask the candidate; everything that goes wrong there is its fault and fatal."""
        try:
            reply = self.candidate.ask(message, self.watch, descriptors)
        except ChildEnded as ended:
            raise CaseFailed(
                _ending_verdict(ended.status), f"{ended} {occasion}", fatal=True
            ) from None
        except DeadlinePassed:
            raise CaseFailed(Verdict.timeout, f"no answer in time {occasion}", fatal=True) from None
        except BadMessage as error:
            reason = f"its result channel carried {error}, {occasion}"
            raise CaseFailed(Verdict.tampered, reason, fatal=True) from None
        if failed := reply.message.get("failed"):
            raise _reported(str(failed), reply.message, occasion)
        return reply


class FatalCase(Exception):
    """The case that ended the candidate's process; no other case can run after it."""

    def __init__(self, result: CaseResult) -> None:
        super().__init__(result.reason)
        self.result = result


TORCH_DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int64": "int64"}


def _reported(kind: str, message: Message, occasion: str) -> CaseFailed:
    """What the candidate's process said about itself."""
    text = str(message.get("text", ""))
    if kind == "missing_symbol":
        return CaseFailed(Verdict.compile_error, text, fatal=True)
    if kind == "memory":
        return CaseFailed(Verdict.out_of_memory, f"{text} {occasion}", fatal=True)
    summary = str(message.get("summary", "exception"))
    return CaseFailed(Verdict.crashed, f"{summary} {occasion}\n{text}", fatal=True)


def _ending_verdict(status: int) -> Verdict:
    if status == -signal.SIGXCPU:
        return Verdict.timeout
    return Verdict.out_of_memory if status == -signal.SIGKILL else Verdict.crashed


def _nanoseconds(message: Message) -> int:
    value = message.get("ns")
    if type(value) is not int or value <= 0:
        raise CaseFailed(Verdict.tampered, f"it reported a time of {value!r}", fatal=True)
    return value


def _differences(first: list[float], second: list[float]) -> list[float]:
    return [a - b for a, b in zip(first, second, strict=True)]


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    return ordered[len(ordered) // 2]
