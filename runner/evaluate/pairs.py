"""The times of one case, pair by pair, and what disputes them. Pure: it asks no process.

A dispute is a sentence for the result, or None. What follows from it is the timer's business.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from runner.evaluate import processor

CLOCK_SLACK_US = {"host": 50.0, "cuda": 100.0}
CLOCK_SLACK_RATIO = 0.02
DISPUTED_QUANTILES = (0.1, 0.25, 0.5)
STANDARD_ERRORS = 1.5
IDLE_SLACK_US = 100.0
IDLE_SLACK_RATIO = 0.05
FLUSH_RATIO = 1.25


@dataclass
class Side:
    """Microseconds of one side's calls, in pair order.

    `own_us` by its process's clock, `outside_us` the parent's around the round trip. On a GPU also
    the host's time until the call returned, and what the flush before it took.
    """

    own_us: list[float] = field(default_factory=list)
    outside_us: list[float] = field(default_factory=list)
    launch_us: list[float] = field(default_factory=list)
    flush_us: list[float] = field(default_factory=list)

    @property
    def overhead_us(self) -> list[float]:
        """What the parent saw beyond what the process owned up to."""
        return [out - own for out, own in zip(self.outside_us, self.own_us, strict=True)]


@dataclass
class PairTimes:
    """Both sides, and what the candidate's processes worked while they were asked nothing."""

    baseline: Side = field(default_factory=Side)
    candidate: Side = field(default_factory=Side)
    idle_us: list[float] = field(default_factory=list)
    rest: processor.Times | None = None  # the candidate's processes when its last call returned


def clock_excess_us(times: PairTimes) -> float:
    """What the candidate's round trips took beyond the baseline's, in the median."""
    return median(times.candidate.overhead_us) - median(times.baseline.overhead_us)


def clock_dispute(times: PairTimes, kind: str) -> str | None:
    """The parent's clock around a round trip bounds what the candidate's own clock may hide.

    Both sides run the same code around the call, so what the candidate's round trip takes beyond
    the baseline's is time that its own clock did not own up to. The median says it where the
    machine is quiet; a busy one adds time to many calls, seldom to the fastest, so low quantiles
    say it there. The median is asked too, since a lie may spare a few calls.
    """
    ours, theirs = times.baseline.overhead_us, times.candidate.overhead_us
    hidden = max(_surplus(theirs, ours, fraction) for fraction in DISPUTED_QUANTILES)
    outside = median(times.candidate.outside_us)
    if hidden > CLOCK_SLACK_US[kind] + CLOCK_SLACK_RATIO * outside:
        return f"its own clock hides {hidden:.0f} µs of {outside:.0f} µs seen from outside"
    return None


def idle_dispute(times: PairTimes) -> str | None:
    """Who works after its call has returned hides that work, or slows the baseline down."""
    if not times.idle_us:
        return None
    idle = median(times.idle_us)
    if idle > IDLE_SLACK_US + IDLE_SLACK_RATIO * median(times.candidate.own_us):
        return f"its threads or processes worked {idle:.0f} µs after a call had returned"
    return None


def flush_ratio(times: PairTimes, before_ns: int | None) -> float | None:
    """How long a GPU's flush took before the baseline's calls, against before the candidate."""
    if not times.baseline.flush_us or not before_ns:
        return None
    return median(times.baseline.flush_us) * 1000 / before_ns


def slowed_dispute(ratio: float | None) -> str | None:
    """The flush is the same work each time: where it takes longer, somebody else is at work."""
    if ratio is not None and ratio > FLUSH_RATIO:
        return f"while the baseline ran the GPU was busy: a flush took {ratio:.2f} times as long"
    return None


def median(values: Sequence[float]) -> float:
    return _quantile(values, 0.5)


def _surplus(theirs: Sequence[float], ours: Sequence[float], fraction: float) -> float:
    """By how much a quantile is larger, each taken some standard errors towards the other.

    With two of them, two honest calls of ten would cover for the rest.
    """
    error = STANDARD_ERRORS * math.sqrt(fraction * (1 - fraction) / len(ours))
    return _quantile(theirs, fraction - error) - _quantile(ours, fraction + error)


def _quantile(values: Sequence[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[max(0, min(len(ordered) - 1, int(fraction * len(ordered))))]
