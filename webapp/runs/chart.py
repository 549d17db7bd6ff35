"""Geometry of the small chart on the run page: the best speedup so far, candidate by candidate.

Pure: candidate rows in, coordinates out; the template draws. Speedup is on a log scale, since 2×
faster and 2× slower are equally far from 1×. A candidate without a speedup sits on the floor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from runner.results import Verdict

WIDTH, HEIGHT = 400, 132
LEFT, RIGHT, TOP, FLOOR = 34, 10, 12, 104  # FLOOR is the lowest y of the plot; failures lie below
FAILED_Y = 118
TICK_PITCH = 13  # between two labels that can both be read
SUSPECT = {
    Verdict.mutated_input,
    Verdict.flaky,
    Verdict.tampered,
    Verdict.timing_disputed,
    Verdict.impossible,
}
LADDER = (0.1, 0.2, 0.5, 1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)


class Judged(Protocol):
    """What the chart needs of a candidate."""

    @property
    def number(self) -> int: ...
    @property
    def verdict(self) -> str: ...
    @property
    def speedup(self) -> float | None: ...
    @property
    def ci_low(self) -> float | None: ...


@dataclass(frozen=True)
class Point:
    """`shape` tells the verdict without colour: dot, cross, flag or ring."""

    number: int
    x: float
    y: float
    shape: str
    verdict: str
    speedup: float | None
    best: bool


@dataclass(frozen=True)
class Tick:
    value: float
    y: float

    @property
    def label(self) -> str:
        return f"{self.value:g}×"


@dataclass(frozen=True)
class Chart:
    points: tuple[Point, ...]
    steps: str  # the best so far, as the points of an SVG polyline
    ticks: tuple[Tick, ...]
    goal_y: float | None
    goal: float | None
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right_edge: int = WIDTH - RIGHT
    failed_y: int = FAILED_Y

    @property
    def passed(self) -> int:
        return self._count("dot")

    @property
    def failed(self) -> int:
        return self._count("cross")

    @property
    def suspect(self) -> int:
        return self._count("flag")

    @property
    def unmeasured(self) -> int:
        return self._count("ring")

    def _count(self, shape: str) -> int:
        return sum(point.shape == shape for point in self.points)


def chart(candidates: Sequence[Judged], goal: float | None = None) -> Chart:
    """The chart of a run's candidates in order of number."""
    speedups = [c.speedup for c in candidates if c.speedup]
    low, high = _range([*speedups, 1.0, *([goal] if goal else [])])

    def y_of(value: float) -> float:
        share = (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return round(FLOOR - share * (FLOOR - TOP), 1)

    xs = _columns(len(candidates))
    records = _records(candidates)
    best = records[-1] if records else None
    points = tuple(_point(c, x, y_of, best) for c, x in zip(candidates, xs, strict=True))
    ticks = _ticks([Tick(value, y_of(value)) for value in LADDER if low <= value <= high])
    goal_y = y_of(goal) if goal else None
    return Chart(points, _steps(points, records), ticks, goal_y, goal)


def _records(candidates: Sequence[Judged]) -> list[int]:
    """Numbers of the candidates that led when they were judged, by the floor of their interval.

    The last is the best of the run. Its speedup may lie below that of a candidate less sure.
    """
    records: list[int] = []
    floor = 0.0
    for candidate in candidates:
        if candidate.ci_low is not None and candidate.ci_low > floor:
            floor = candidate.ci_low
            records.append(candidate.number)
    return records


def _range(values: Sequence[float]) -> tuple[float, float]:
    """The span of the values with some air, never so narrow that noise looks like progress."""
    low, high = min(values) / 1.05, max(values) * 1.05
    return (low, high) if high / low >= 1.3 else (low / 1.1, high * 1.1)


def _columns(count: int) -> list[float]:
    width = WIDTH - RIGHT - LEFT - 12
    pitch = min(28.0, width / max(1, count - 1))
    return [round(LEFT + 8 + index * pitch, 1) for index in range(count)]


def _ticks(candidates: Sequence[Tick]) -> tuple[Tick, ...]:
    """1× first, then every other that is not written over one before it."""
    kept: list[Tick] = []
    for tick in sorted(candidates, key=lambda tick: tick.value != 1):
        if all(abs(tick.y - other.y) >= TICK_PITCH for other in kept):
            kept.append(tick)
    return tuple(sorted(kept, key=lambda tick: tick.value))


def _point(candidate: Judged, x: float, y_of: Callable[[float], float], best: int | None) -> Point:
    if candidate.speedup:
        y, shape = y_of(candidate.speedup), "dot"
    elif not candidate.verdict or candidate.verdict == Verdict.unmeasured:
        y, shape = FAILED_Y, "ring"
    else:
        y, shape = FAILED_Y, "flag" if candidate.verdict in SUSPECT else "cross"
    verdict, is_best = candidate.verdict or "pending", candidate.number == best
    return Point(candidate.number, x, y, shape, verdict, candidate.speedup, is_best)


def _steps(points: Sequence[Point], records: Sequence[int]) -> str:
    """Right, then up: a record holds until the candidate that beats it."""
    path: list[str] = []
    level: float | None = None
    for point in points:
        if point.number in records:
            if level is not None:
                path.append(f"{point.x},{level}")
            level = point.y
            path.append(f"{point.x},{level}")
    if path:
        path.append(f"{points[-1].x},{level}")
    return " ".join(path)
