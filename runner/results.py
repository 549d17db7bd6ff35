"""The words for what an evaluation found. Impossible states cannot be built.

There is no timing unless the check passed, no speedup unless the same timer measured baseline
and candidate under the same lease, and no aggregate unless every scored case passed.
Times are microseconds (`_us`), sizes bytes, speedup is baseline ÷ candidate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from runner.integrity import Meaning, meaning_of
from runner.wire import to_json


class Verdict(StrEnum):
    """How an evaluation, or one case of it, ended. The set is closed."""

    passed = "passed"
    unmeasured = "unmeasured"
    compile_error = "compile_error"
    wrong_shape = "wrong_shape"
    wrong_dtype = "wrong_dtype"
    wrong_values = "wrong_values"
    non_finite = "non_finite"
    mutated_input = "mutated_input"
    flaky = "flaky"
    tampered = "tampered"
    timing_disputed = "timing_disputed"
    impossible = "impossible"
    timeout = "timeout"
    crashed = "crashed"
    out_of_memory = "out_of_memory"
    harness_error = "harness_error"


class Outcome(StrEnum):
    """What the confidence interval of the ratio says: does it exclude 1.0, and on which side."""

    faster = "faster"
    slower = "slower"
    indistinguishable = "indistinguishable"


class CheckStatus(StrEnum):
    """How an integrity check ended. Not judged is no pass: nobody knows."""

    passed = "passed"
    failed = "failed"
    not_judged = "not_judged"


@dataclass(frozen=True)
class Timing:
    """Candidate against one named baseline on one case: same timer, same lease, interleaved.

    On a GPU the times are the device's; `launch_us` and `baseline_launch_us` are the median host
    times until the call itself returned. None on the host, where the call is the work.
    """

    baseline: str
    median_us: float
    p10_us: float
    p90_us: float
    baseline_us: float
    baseline_p10_us: float
    baseline_p90_us: float
    speedup: float
    ci95: tuple[float, float]
    outcome: Outcome
    samples: int
    launch_us: float | None = None
    baseline_launch_us: float | None = None

    def __post_init__(self) -> None:
        if min(self.median_us, self.baseline_us, self.speedup) <= 0 or self.samples < 1:
            raise ValueError("a timing needs positive times and at least one sample")
        if min(self.launch_us or 0, self.baseline_launch_us or 0) < 0:
            raise ValueError("a launch takes no negative time")
        if not 0 < self.ci95[0] <= self.ci95[1]:
            raise ValueError("ci95 must be positive and ordered")

    @property
    def launch_bound(self) -> bool:
        """True where the host takes longer to launch the kernel than the device to run it."""
        return self.launch_us is not None and self.launch_us > self.median_us


@dataclass(frozen=True)
class CaseResult:
    """One case. `flops` and `bytes_moved` are the problem's useful work, not counters."""

    case: str
    verdict: Verdict
    reason: str = ""
    scored: bool = True
    dtype: str = "fp32"
    max_rel_error: float | None = None
    norm_error: float | None = None
    flops: int = 0
    bytes_moved: int = 0
    timing: Timing | None = None

    def __post_init__(self) -> None:
        if self.timing is not None and self.verdict is not Verdict.passed:
            raise ValueError(f"case {self.case}: a timing needs a passed check")

    @property
    def flops_per_second(self) -> float | None:
        return self.flops / (self.timing.median_us * 1e-6) if self.timing else None

    @property
    def bytes_per_second(self) -> float | None:
        return self.bytes_moved / (self.timing.median_us * 1e-6) if self.timing else None

    @property
    def intensity(self) -> float | None:
        """Useful arithmetic intensity, FLOP per byte."""
        return self.flops / self.bytes_moved if self.bytes_moved else None


@dataclass(frozen=True)
class IntegrityCheck:
    """One named trust check, with its evidence in words a reviewer understands.

    `passed` is true for a pass alone. Older records hold no `status`: there a check that is not
    passed failed, and one that was not judged counted as passed and said so in its detail.
    """

    check: str
    passed: bool
    detail: str
    status: CheckStatus = CheckStatus.passed

    def __post_init__(self) -> None:
        if self.passed and self.status is not CheckStatus.passed:
            raise ValueError(f"check {self.check}: {self.status} is no pass")
        if self.passed and self.detail.startswith("not judged"):
            object.__setattr__(self, "passed", False)
            object.__setattr__(self, "status", CheckStatus.not_judged)
        elif not self.passed and self.status is CheckStatus.passed:
            object.__setattr__(self, "status", CheckStatus.failed)

    @classmethod
    def not_judged(cls, check: str, why: str) -> IntegrityCheck:
        """A check that could not be made here; `why` is its evidence."""
        return cls(check, False, why, CheckStatus.not_judged)

    @property
    def meaning(self) -> Meaning:
        return meaning_of(self.check)


NOT_ISOLATED = "no network or file-system isolation"  # what the sentence says where there is none


@dataclass(frozen=True)
class DeviceInfo:
    """`kind` is `host` or `cuda`; `uuid` names the physical device."""

    name: str
    kind: str
    model: str
    uuid: str
    details: dict[str, str]


@dataclass(frozen=True)
class Ceiling:
    """One roof of the roofline. `unit` is `B/s` or `FLOP/s`.

    `source` is `measured`, `datasheet` or `modelled`; `detail` says how the number came about.
    A roof nobody could obtain has value None, and `detail` says why.
    """

    name: str
    unit: str
    value: float | None
    source: str
    detail: str
    dtype: str = ""


@dataclass(frozen=True)
class Evaluation:
    """Everything one evaluation found; what reaches the log, the page and the reviewer."""

    verdict: Verdict
    reason: str
    cases: tuple[CaseResult, ...]
    integrity: tuple[IntegrityCheck, ...]
    timer: str
    device: DeviceInfo
    versions: dict[str, str]
    source_sha256: str
    isolation: str
    output: str = ""
    compile_output: str = ""
    wall_s: float = 0.0

    def __post_init__(self) -> None:
        if self.verdict is Verdict.passed and not all(
            case.verdict is Verdict.passed for case in self.cases
        ):
            raise ValueError("an evaluation passes only if every case passes")

    @property
    def isolated(self) -> bool:
        """False where the record says that nothing kept the candidate from its surroundings."""
        return not (self.isolation.lower().startswith("none") or NOT_ISOLATED in self.isolation)

    @property
    def scored(self) -> tuple[CaseResult, ...]:
        return tuple(case for case in self.cases if case.scored)

    @property
    def speedup(self) -> float | None:
        """Geometric mean over the scored cases; None unless every one passed and was timed."""
        return self._geometric_mean([case.timing.speedup for case in self.scored if case.timing])

    @property
    def ci95(self) -> tuple[float, float] | None:
        """Geometric means of the interval ends: wider than a joint interval, never narrower.

        What disturbs one case of a lease may disturb the others alike, so nothing is assumed to
        cancel. Where it does cancel, two cases or more hold the truth in over 99 of 100.
        """
        low = self._geometric_mean([case.timing.ci95[0] for case in self.scored if case.timing])
        high = self._geometric_mean([case.timing.ci95[1] for case in self.scored if case.timing])
        return None if low is None or high is None else (low, high)

    @property
    def floor(self) -> float | None:
        """What the speedup is at least, with 95% confidence: candidates are ranked by this.

        Ranked by the middle of the interval, the noisiest measurement would win.
        """
        return self.ci95[0] if self.ci95 else None

    def better_than(self, other: Evaluation | None) -> bool:
        """True for a measured evaluation that outranks `other`, or that has nobody to outrank."""
        if self.floor is None:
            return False
        return other is None or other.floor is None or self.floor > other.floor

    def _geometric_mean(self, values: list[float]) -> float | None:
        if self.verdict is not Verdict.passed or not values or len(values) != len(self.scored):
            return None
        return math.exp(sum(math.log(value) for value in values) / len(values))


def flat_json(evaluation: Evaluation) -> dict[str, Any]:
    """The document of `runner evaluate --json`: each case's timing laid flat, null where absent.

    Each integrity check carries its title and meaning, so that the document explains itself.
    """
    document = to_json(evaluation)
    document["speedup"] = evaluation.speedup
    document["ci95"] = list(evaluation.ci95) if evaluation.ci95 else None
    document["isolated"] = evaluation.isolated
    names = Timing.__dataclass_fields__
    for case in document["cases"]:
        timing = case.pop("timing") or dict.fromkeys(names)
        case.update(timing)
    for check in document["integrity"]:
        check.update(to_json(meaning_of(check["check"])))
    return document
