"""From pairs of times to a Timing: medians, spread, the ratio and how sure it is."""

from __future__ import annotations

import math

import numpy

from runner.results import Outcome, Timing

RESAMPLES = 2000
NORMAL_95 = 1.96
PROCESS_EFFECT = {"host": (0.015, 0.0), "cuda": (0.0003, 0.1)}  # of the median, and in µs
SEED = 20260101  # the interval of given samples is reproducible


def timing(
    baseline: str,
    baseline_us: list[float],
    candidate_us: list[float],
    *,
    baseline_launch_us: list[float] | None = None,
    candidate_launch_us: list[float] | None = None,
    process_effect: float = 0.0,
) -> Timing:
    """Both lists hold one time per pair, in pair order, by the same timer under one lease.

    The speedup is the ratio of medians. Its interval resamples whole pairs, so that what disturbs
    both calls of a pair cancels. Launches are host times until each call returned, on a GPU only.
    `process_effect` is what pairs cannot show, see `effect_of_processes`.
    """
    base, mine = numpy.asarray(baseline_us), numpy.asarray(candidate_us)
    base_p10, base_median, base_p90 = map(float, numpy.percentile(base, (10, 50, 90)))
    p10, median, p90 = map(float, numpy.percentile(mine, (10, 50, 90)))
    low, high = _interval(base, mine, base_median / median)
    low, high = _widened(base_median / median, low, high, process_effect)
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


def effect_of_processes(kind: str, median_us: float) -> float:
    """Standard deviation of the ratio's logarithm between evaluations of one kernel against itself.

    Two processes never have the same pages of memory, and no pair of calls shows it. Measured as
    the spread of the ratios of torch against itself beyond what their intervals explain: on a host
    1.5% (2 cores, 170 to 320 µs), on an H200 0.03% of 770 µs and 0.3% of 31 µs.
    """
    relative, absolute_us = PROCESS_EFFECT[kind]
    return relative + absolute_us / median_us


def _widened(ratio: float, low: float, high: float, effect: float) -> tuple[float, float]:
    """Both uncertainties are independent: their widths add as squares, on a logarithmic scale."""
    below = math.hypot(math.log(ratio / low), NORMAL_95 * effect)
    above = math.hypot(math.log(high / ratio), NORMAL_95 * effect)
    return ratio * math.exp(-below), ratio * math.exp(above)


def _median(times_us: list[float] | None) -> float | None:
    return float(numpy.median(times_us)) if times_us else None


def _interval(base: numpy.ndarray, mine: numpy.ndarray, ratio: float) -> tuple[float, float]:
    """The 95% interval of the ratio of medians; it holds `ratio`, the measured one.

    The percentile bootstrap over whole pairs, then widened about the ratio, on a logarithmic scale,
    by the root of the correlation time. `tests/benchmarks/interval_coverage.py` simulates it: of
    independent pairs it holds the truth in 94% or more, for 10, 30 and 200 pairs and for normal,
    heavy-tailed, drifting, two-mode and coarsely clocked times. With an autocorrelation of 0.5
    within one side it does in 95% for 200 pairs, 90% for 30, 82% for 10: so few do not show that
    they hang together (without the widening: 81, 82, 78%). States that last a tenth of the
    measurement or longer stay under-covered.

    It speaks of this pair of processes and cannot know how the next one will lie in memory: torch
    against itself on a quiet host of two cores, 20 evaluations of 200 pairs, was spread from one to
    the next by 1.1% (softmax) and 1.9% (vector_add), where the interval tells of 0.7% and 1.1%, and
    34 of 40 intervals held the mean.

    Rejected: bias correction (BCa, 88% where both sides share two modes); order statistics and
    Hodges–Lehmann of the ratios within pairs (another quantity than the ratio of medians).
    """
    generator = numpy.random.default_rng(SEED)
    base, mine = _between_ticks(base, generator), _between_ticks(mine, generator)
    chosen = generator.integers(0, len(base), size=(RESAMPLES, len(base)))
    ratios = numpy.median(base[chosen], axis=1) / numpy.median(mine[chosen], axis=1)
    low, high = numpy.percentile(ratios, (2.5, 97.5)) / ratio
    widening = math.sqrt(correlation_time(base, mine))
    return float(ratio * min(low, 1) ** widening), float(ratio * max(high, 1) ** widening)


def _between_ticks(times: numpy.ndarray, generator: numpy.random.Generator) -> numpy.ndarray:
    """Times spread over the tick of the clock that they were rounded to, where readings repeat.

    Equal readings of a coarse clock are not equal times: left alone, half of all readings on one
    tick make an interval of no width. The tick is the smallest step between readings.
    """
    readings = numpy.unique(times)
    if len(readings) in (1, len(times)):
        return times
    tick = min(numpy.diff(readings).min(), readings[0])
    return times + tick * (generator.random(len(times)) - 0.5)


def correlation_time(base: numpy.ndarray, mine: numpy.ndarray) -> float:
    """How many successive pairs tell as much about the ratio as one independent pair; at least 1.

    Of the series of signs about the medians, baseline minus candidate: to first order the ratio of
    medians moves with nothing else, and what disturbs both sides alike cancels. Neighbouring
    autocorrelations are added while their sum is positive (Geyer, 1992: initial positive sequence).
    """
    signs = numpy.sign(base - numpy.median(base)) - numpy.sign(mine - numpy.median(mine))
    series = signs - signs.mean()
    power = float(series @ series)
    time = 1.0
    for lag in range(1, len(series) // 2, 2):
        near, far = series[:-lag] @ series[lag:], series[: -lag - 1] @ series[lag + 1 :]
        if power == 0 or near + far <= 0:
            break
        time += 2 * float(near + far) / power
    return time


def _outcome(low: float, high: float) -> Outcome:
    if low > 1:
        return Outcome.faster
    return Outcome.slower if high < 1 else Outcome.indistinguishable
