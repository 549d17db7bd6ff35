"""Does the 95% interval of a speedup hold the true ratio 95 times in 100?

    python -m tests.benchmarks.interval_coverage [--evaluations 1000] [--pairs 10 30 200]

Times of a known ratio are drawn with the noise that machines are seen to make, an interval is
computed from each set of pairs as an evaluation does it, and it is counted how often it holds the
truth. A last table does the same for the aggregate of several cases. No kernel runs and no clock is
read: any machine gives the same figures.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy

from runner.evaluate import statistics
from runner.results import CaseResult, DeviceInfo, Evaluation, Timing, Verdict

Array: TypeAlias = numpy.ndarray
Draw: TypeAlias = Callable[[numpy.random.Generator, int], Array]

SEED = 7
MANY = 1 << 20  # draws that stand for the whole distribution
CASES = (1, 2, 4, 8)
NOTHING = Evaluation(
    Verdict.passed, "", (), (), "", DeviceInfo("host", "host", "", "", {}), {}, "", ""
)


def normal(generator: numpy.random.Generator, pairs: int) -> Array:
    return numpy.exp(0.01 * generator.standard_normal(pairs))


def heavy(generator: numpy.random.Generator, pairs: int) -> Array:
    """Disturbed upwards only, without a mean: a busy neighbour."""
    return 1 + 0.01 * numpy.abs(generator.standard_t(1.5, pairs))


def two_modes(generator: numpy.random.Generator, pairs: int) -> Array:
    """Two calls in five take 15% longer: placement of threads or pages."""
    return normal(generator, pairs) * numpy.where(generator.random(pairs) < 0.4, 1.15, 1.0)


def coarse(us: float) -> Draw:
    """Calls of about `us` with 3% of noise, read from a clock of half a microsecond."""

    def draw(generator: numpy.random.Generator, pairs: int) -> Array:
        return numpy.round(2 * us * normal(generator, pairs) ** 3) / 2

    return draw


def drift(generator: numpy.random.Generator, pairs: int) -> Array:
    """For both sides of a pair alike: heat, and a slow wander."""
    slope = generator.uniform(-0.1, 0.1) * numpy.linspace(0, 1, pairs)
    return numpy.exp(slope + 0.003 * numpy.cumsum(generator.standard_normal(pairs)))


def correlated(generator: numpy.random.Generator, pairs: int) -> Array:
    """An autocorrelation of a half from call to call of one side."""
    values = generator.standard_normal(pairs)
    for index in range(1, pairs):
        values[index] = 0.5 * values[index - 1] + 0.75**0.5 * values[index]
    return numpy.exp(0.01 * values)


def states(generator: numpy.random.Generator, pairs: int) -> Array:
    """One side is 3% slower for some twenty calls in a row, at random."""
    begins = generator.random(pairs) < 1 / 20
    level = generator.random(pairs) < 0.5
    held = numpy.maximum.accumulate(numpy.where(begins, numpy.arange(pairs), 0))
    return normal(generator, pairs) * numpy.where(level[held], 1.03, 1.0)


@dataclass(frozen=True)
class Noise:
    """What makes each side's times, and what multiplies both times of a pair."""

    name: str
    baseline: Draw
    candidate: Draw
    common: Draw | None = None
    known_ratio: float | None = None

    def pairs(self, generator: numpy.random.Generator, pairs: int) -> tuple[Array, Array]:
        common = self.common(generator, pairs) if self.common else 1.0
        return common * self.baseline(generator, pairs), common * self.candidate(generator, pairs)

    @property
    def ratio(self) -> float:
        """The true ratio of medians, of the candidate's own time: what both sides share cancels."""
        if self.known_ratio is not None:
            return self.known_ratio
        medians = [
            float(numpy.median(draw(numpy.random.default_rng(SEED), MANY)))
            for draw in (self.baseline, self.candidate)
        ]
        return medians[0] / medians[1]


NOISES = (
    Noise("normal", normal, normal, known_ratio=1),
    Noise("heavy tails", heavy, heavy, known_ratio=1),
    Noise("heavy tails, candidate alone", normal, heavy),
    Noise("drift of both", normal, normal, drift, known_ratio=1),
    Noise("two modes", two_modes, two_modes, known_ratio=1),
    Noise("two modes, candidate alone", normal, two_modes),
    Noise("two modes of both", normal, normal, two_modes, known_ratio=1),
    Noise("coarse clock", coarse(10), coarse(10), known_ratio=1),
    Noise("coarse clock, 2% faster", coarse(10.2), coarse(10), known_ratio=1.02),
    Noise("autocorrelation 0.5", correlated, correlated, known_ratio=1),
    Noise("states of 20 calls", states, states, known_ratio=1),
)
HANG_TOGETHER = (correlated, states)


def timed(noise: Noise, generator: numpy.random.Generator, pairs: int) -> Timing:
    baseline, candidate = noise.pairs(generator, pairs)
    return statistics.timing("baseline", baseline.tolist(), candidate.tolist())


def holds(interval: tuple[float, float] | None, ratio: float) -> bool:
    return interval is not None and interval[0] <= ratio <= interval[1]


def report(noise: Noise, pairs: int, evaluations: int) -> None:
    generator, ratio = numpy.random.default_rng(SEED), noise.ratio
    found = [timed(noise, generator, pairs).ci95 for _ in range(evaluations)]
    covered = sum(holds(interval, ratio) for interval in found) / evaluations
    width = numpy.median([(high - low) / 2 for low, high in found])
    print(f"{noise.name:<30}{pairs:>6}{covered:>10.1%}{width:>12.2%}", flush=True)


def report_aggregate(noises: tuple[Noise, ...], cases: int, evaluations: int) -> None:
    """Several cases of 30 pairs, each with the next noise in turn."""
    generator = numpy.random.default_rng(SEED)
    chosen = [noises[index % len(noises)] for index in range(cases)]
    truth = float(numpy.prod([noise.ratio for noise in chosen]) ** (1 / cases))
    covered, widths = 0, []
    for _ in range(evaluations):
        results = tuple(
            CaseResult(str(index), Verdict.passed, timing=timed(noise, generator, 30))
            for index, noise in enumerate(chosen)
        )
        low, high = replace(NOTHING, cases=results).ci95 or (0.0, 0.0)
        covered += low <= truth <= high
        widths.append((high - low) / 2)
    print(f"{cases:<30}{30:>6}{covered / evaluations:>10.1%}{numpy.median(widths):>12.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument("--pairs", type=int, nargs="+", default=[10, 30, 200])
    options = parser.parse_args()
    print(f"{'noise':<30}{'pairs':>6}{'covered':>10}{'half-width':>12}")
    for noise in NOISES:
        for pairs in options.pairs:
            report(noise, pairs, options.evaluations)
    independent = tuple(noise for noise in NOISES if noise.baseline not in HANG_TOGETHER)
    print(f"\n{'cases of one evaluation':<30}{'pairs':>6}{'covered':>10}{'half-width':>12}")
    for cases in CASES:
        report_aggregate(independent, cases, options.evaluations)


if __name__ == "__main__":
    main()
