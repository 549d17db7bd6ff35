"""The interval of a speedup: it holds the measured ratio, and the true one as often as it says."""

from __future__ import annotations

import numpy
import pytest

from runner.evaluate.statistics import correlation_time, timing
from runner.results import Outcome, Timing
from tests.benchmarks.interval_coverage import NOISES, coarse, holds, timed

INDEPENDENT = [noise for noise in NOISES if noise.name in ("normal", "heavy tails", "two modes")]


def noisy(seed: int, pairs: int = 200) -> numpy.ndarray:
    return numpy.exp(0.01 * numpy.random.default_rng(seed).standard_normal(pairs))


def measured(baseline: numpy.ndarray, candidate: numpy.ndarray) -> Timing:
    return timing("torch", baseline.tolist(), candidate.tolist())


@pytest.mark.parametrize("noise", INDEPENDENT, ids=lambda noise: noise.name)
def test_the_interval_holds_the_true_ratio(noise) -> None:  # type: ignore[no-untyped-def]
    generator = numpy.random.default_rng(3)
    covered = sum(holds(timed(noise, generator, 30).ci95, noise.ratio) for _ in range(200))
    assert covered >= 184  # 92%: two standard deviations below 95% of 200


@pytest.mark.parametrize("pairs", [1, 2, 3, 10, 31])
def test_the_speedup_lies_in_its_interval(pairs: int) -> None:
    generator = numpy.random.default_rng(pairs)
    for _ in range(50):
        found = measured(*(generator.pareto(0.5, pairs) + 0.1 for _ in range(2)))
        assert found.ci95[0] <= found.speedup <= found.ci95[1]


def test_the_same_times_give_the_same_interval() -> None:
    assert measured(noisy(1), noisy(2)) == measured(noisy(1), noisy(2))


def test_a_kernel_three_percent_faster_is_called_faster() -> None:
    assert measured(1.03 * noisy(1), noisy(2)).outcome is Outcome.faster
    assert measured(noisy(1), 1.03 * noisy(2)).outcome is Outcome.slower
    assert measured(noisy(1), noisy(2)).outcome is Outcome.indistinguishable


def test_independent_pairs_each_count_and_repeated_ones_do_not() -> None:
    independent = correlation_time(noisy(1), noisy(2))
    repeated = correlation_time(noisy(1, 50).repeat(4), noisy(2, 50).repeat(4))
    assert 1 <= independent < 1.6
    assert 3 < repeated < 8


def test_a_disturbance_of_both_sides_does_not_tie_pairs_together() -> None:
    wave = numpy.exp(0.5 * numpy.sin(numpy.linspace(0, 12, 200)))
    assert correlation_time(wave * noisy(1), wave * noisy(2)) < 1.6


def test_times_without_any_spread_are_no_division_by_zero() -> None:
    found = measured(numpy.full(30, 20.0), numpy.full(30, 10.0))
    assert found.speedup == 2.0
    assert found.ci95 == (2.0, 2.0)


def test_a_coarse_clock_does_not_make_a_ratio_certain() -> None:
    draw, generator = coarse(10), numpy.random.default_rng(5)
    low, high = measured(draw(generator, 200), draw(generator, 200)).ci95
    assert high - low > 0.01


def test_launches_are_medians_of_their_own_and_absent_on_the_host() -> None:
    assert measured(noisy(1), noisy(2)).launch_us is None
    found = timing(
        "torch",
        [20.0, 20.0, 21.0],
        [5.0, 5.0, 6.0],
        baseline_launch_us=[4.0, 3.0, 5.0],
        candidate_launch_us=[9.0, 30.0, 9.5],
    )
    assert (found.baseline_launch_us, found.launch_us) == (4.0, 9.5)
    assert found.launch_bound
