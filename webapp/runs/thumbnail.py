"""Geometry of the roofline's thumbnail: the roofs, and where the first and best candidate lie.

Pure mapping of `review.roofline.Roofline` onto a small log-log field; that module decides what the
roofs and the points are, and its own page shows all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from webapp.review.roofline import Point, Roofline

WIDTH, HEIGHT = 400, 128
LEFT, RIGHT, TOP, BOTTOM = 4, 396, 6, 112


@dataclass(frozen=True)
class Stroke:
    name: str
    source: str
    points: str


@dataclass(frozen=True)
class Spot:
    candidate: int
    case: str
    x: float
    y: float
    best: bool
    share: float | None
    roof: str | None


@dataclass(frozen=True)
class Mark:
    """A decade of the intensity axis."""

    label: str
    x: float


class Thumbnail:
    width, height, left, right, top, bottom = WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM

    def __init__(self, roofline: Roofline) -> None:
        self._roofline = roofline
        self._domain = roofline.domain

    def _x(self, intensity: float) -> float:
        low, high = self._domain[:2]
        return round(LEFT + (RIGHT - LEFT) * _share(intensity, low, high), 1)

    def _y(self, rate: float) -> float:
        low, high = self._domain[2:]
        return round(BOTTOM - (BOTTOM - TOP) * _share(rate, low, high), 1)

    def _path(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        return " ".join(f"{self._x(x)},{self._y(y)}" for x, y in zip(xs, ys, strict=True))

    @property
    def strokes(self) -> list[Stroke]:
        lines = [line for line in self._roofline.lines if line.shown]
        return [Stroke(n.roof.name, n.roof.source, self._path(n.x, n.y)) for n in lines]

    @property
    def impossible(self) -> str:
        outline = self._roofline.impossible
        return self._path(*outline) if outline else ""

    @property
    def spots(self) -> list[Spot]:
        """The best candidate's last, so that it lies on top."""
        return [self._spot(point) for point in reversed(self._roofline.points)]

    def _spot(self, point: Point) -> Spot:
        x, y = self._x(point.intensity), self._y(point.flops_per_s)
        best = point.rank == 1
        return Spot(point.candidate, point.case, x, y, best, point.share, point.roof)

    @property
    def shows_first(self) -> bool:
        return any(point.rank != 1 for point in self._roofline.points)

    @property
    def best(self) -> list[Point]:
        return self._roofline.best

    @property
    def marks(self) -> list[Mark]:
        low, high = (math.log10(value) for value in self._domain[:2])
        decades = range(math.ceil(low), math.floor(high) + 1)
        return [Mark(f"{10.0**power:g}", self._x(10.0**power)) for power in decades]

    @property
    def reason(self) -> str:
        """Why there are no roofs, or nothing."""
        return self._roofline.roofs.reason


def _share(value: float, low: float, high: float) -> float:
    """Where a value lies between two others on a log scale, held inside the field."""
    return min(1.0, max(0.0, math.log(value / low) / math.log(high / low)))
