"""From pairs of times to a Timing: medians, spread, the ratio and how sure it is."""

from __future__ import annotations

import numpy

from runner.results import Outcome, Timing

RESAMPLES = 2000
SEED = 20260101  # the interval of given samples is reproducible


def timing(
    baseline: str,
    baseline_us: list[float],
    candidate_us: list[float],
    *,
    baseline_launch_us: list[float] | None = None,
    candidate_launch_us: list[float] | None = None,
) -> Timing:
    """Both lists hold one time per pair, in pair order, by the same timer under one lease.

    The speedup is the ratio of medians. Its interval resamples whole pairs, so that what disturbs
    both calls of a pair cancels. Launches are host times until each call returned, on a GPU only.
    """
    base, mine = numpy.asarray(baseline_us), numpy.asarray(candidate_us)
    low, high = _interval(base, mine)
    base_p10, base_median, base_p90 = map(float, numpy.percentile(base, (10, 50, 90)))
    p10, median, p90 = map(float, numpy.percentile(mine, (10, 50, 90)))
    return Timing(
        baseline=baseline,
        median_us=median,
        p10_us=p10,
        p90_us=p90,
        baseline_us=base_median,
        baseline_p10_us=base_p10,
        baseline_p90_us=base_p90,
        speedup=base_median / median,
        ci95=(low, high),
        outcome=_outcome(low, high),
        samples=len(mine),
        launch_us=_median(candidate_launch_us),
        baseline_launch_us=_median(baseline_launch_us),
    )


def _median(times_us: list[float] | None) -> float | None:
    return float(numpy.median(times_us)) if times_us else None


def _interval(base: numpy.ndarray, mine: numpy.ndarray) -> tuple[float, float]:
    generator = numpy.random.default_rng(SEED)
    chosen = generator.integers(0, len(base), size=(RESAMPLES, len(base)))
    ratios = numpy.median(base[chosen], axis=1) / numpy.median(mine[chosen], axis=1)
    low, high = numpy.percentile(ratios, (2.5, 97.5))
    return float(low), float(high)


def _outcome(low: float, high: float) -> Outcome:
    if low > 1:
        return Outcome.faster
    return Outcome.slower if high < 1 else Outcome.indistinguishable
