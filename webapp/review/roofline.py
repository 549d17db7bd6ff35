"""The roofline of a run: the device's roofs, and how near each candidate's useful work comes.

The useful point of a timed case divides the problem's own FLOPs and compulsory bytes by the
measured time; counters would be other points and are never mixed in. Only `roofs_for` asks the
database; the rest is arithmetic on results. A share above 1 is reported as it is, with the roof
that explains it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from runner import roofs
from runner.events import EventType
from runner.results import CaseResult, Ceiling, DeviceInfo, Evaluation
from runner.roofs import COMPUTE, MEMORY
from runner.wire import to_json
from webapp.fleet.models import Device
from webapp.runs.models import Run


@dataclass(frozen=True)
class Roofs:
    """The ceilings of the device that a run was measured on, and where they were found.

    `reason` says why there are none.
    """

    ceilings: tuple[Ceiling, ...]
    reason: str = ""
    origin: str = ""

    @property
    def known(self) -> tuple[Ceiling, ...]:
        return tuple(roof for roof in self.ceilings if roof.value is not None)

    @property
    def missing(self) -> tuple[Ceiling, ...]:
        return tuple(roof for roof in self.ceilings if roof.value is None)

    def memory(self) -> Ceiling | None:
        """The roof of main memory: the slowest of the best-founded bandwidths."""
        return roofs.memory(self.known)

    def compute(self, dtype: str) -> Ceiling | None:
        """The highest of the best-founded peaks for a data type."""
        return roofs.compute(self.known, dtype)


def _value(roof: Ceiling) -> float:
    return roof.value or 0.0


def roofs_for(run: Run, device: DeviceInfo | None) -> Roofs:
    """The roofs that the run's own log holds: they were known when it ran, and travel with it.

    A log without any takes them from the fleet: from the very device that `device` names, or from
    the one that the run waits for.
    """
    known = run.events.filter(type=EventType.run.value, body__contains='"ceilings":[{').first()
    if known is not None:
        return Roofs(known.log.decoded.ceilings, origin="as this run's log holds them")
    rows = list(Device.objects.exclude(info_text=""))
    if device is not None:
        rows = [row for row in rows if row.info and row.info.uuid == device.uuid]
    else:
        rows = [row for row in rows if row.name == run.device and not run.imported]
    for row in rows:
        if row.ceilings:
            return Roofs(row.ceilings, origin="as this fleet last measured them")
    name = f"{device.model} ({device.name})" if device else run.device
    if rows:
        return Roofs((), f"The ceilings of {name} are not measured yet. {rows[0].problem}".strip())
    where = "neither its log nor this fleet holds them"
    return Roofs((), f"No ceilings measured for this device: for {name}, {where}.")


@dataclass(frozen=True)
class Measured:
    """A candidate with its passing evaluation, as the chart needs them."""

    number: int
    parent: int | None
    evaluation: Evaluation


@dataclass(frozen=True)
class Point:
    """The useful work of one candidate on one timed case.

    `share` is the part of the roof that binds at this intensity; `above` says, for a share beyond
    1, which faster memory level can explain it. `rank` counts candidates from 1, best first.
    """

    candidate: int
    parent: int | None
    rank: int
    case: str
    dtype: str
    intensity: float
    flops_per_s: float
    bytes_per_s: float
    median_us: float
    baseline: str
    baseline_us: float
    speedup: float
    ci95: tuple[float, float]
    samples: int
    timer: str
    device: str
    source_sha256: str
    roof: str | None
    share: float | None
    above: str


@dataclass(frozen=True)
class Line:
    """A roof as drawn: its ends on the chart.

    `shown` False: of a data type that the run lacks. `binding`: shares are parts of this one.
    """

    roof: Ceiling
    x: tuple[float, float]
    y: tuple[float, float]
    shown: bool
    binding: bool = False


@dataclass(frozen=True)
class Ridge:
    """Where main memory and a peak bind alike, in FLOP per byte."""

    memory: str
    compute: str
    intensity: float
    flops_per_s: float


class Roofline:
    """Roofs and points of a run; of one case only, when `case` names one."""

    def __init__(self, roofs: Roofs, measured: Sequence[Measured], case: str = "") -> None:
        self.roofs = roofs
        self.measured = sorted(measured, key=lambda item: -(item.evaluation.floor or 0.0))
        self.case = case

    @cached_property
    def cases(self) -> list[str]:
        """Every timed case, in the order of the contract."""
        names = (case.case for item in self.measured for case in _timed(item.evaluation))
        return list(dict.fromkeys(names))

    @cached_property
    def points(self) -> list[Point]:
        found = []
        for rank, item in enumerate(self.measured, start=1):
            for case in _timed(item.evaluation):
                if case.flops and case.bytes_moved and self.case in ("", case.case):
                    found.append(self._point(item, rank, case))
        return found

    @property
    def without_point(self) -> list[str]:
        """Timed cases with no place on the chart: no FLOPs or no bytes are counted for them."""
        cases = (case for item in self.measured for case in _timed(item.evaluation))
        return sorted({case.case for case in cases if not case.flops or not case.bytes_moved})

    @property
    def best(self) -> list[Point]:
        return [point for point in self.points if point.rank == 1]

    def _point(self, item: Measured, rank: int, case: CaseResult) -> Point:
        timing, evaluation = case.timing, item.evaluation
        rates = case.intensity, case.flops_per_second, case.bytes_per_second
        if timing is None or None in rates:
            raise ValueError(f"case {case.case} of c{item.number} was not timed")
        intensity, flops, moved = (rate or 0.0 for rate in rates)
        share = roofs.share(self.roofs.known, case)
        return Point(
            candidate=item.number,
            parent=item.parent,
            rank=rank,
            case=case.case,
            dtype=case.dtype,
            intensity=intensity,
            flops_per_s=flops,
            bytes_per_s=moved,
            median_us=timing.median_us,
            baseline=timing.baseline,
            baseline_us=timing.baseline_us,
            speedup=timing.speedup,
            ci95=timing.ci95,
            samples=timing.samples,
            timer=evaluation.timer,
            device=evaluation.device.model,
            source_sha256=evaluation.source_sha256,
            roof=share.roof.name if share else None,
            share=share.fraction if share else None,
            above=share.above if share else "",
        )

    @cached_property
    def dtypes(self) -> set[str]:
        return {case.dtype for item in self.measured for case in _timed(item.evaluation)}

    @cached_property
    def ridges(self) -> list[Ridge]:
        """One for each data type that was timed."""
        memory, found = self.roofs.memory(), []
        for dtype in sorted(self.dtypes):
            compute = self.roofs.compute(dtype)
            if memory and compute:
                at = _value(compute) / _value(memory)
                found.append(Ridge(memory.name, compute.name, at, _value(compute)))
        return found

    @cached_property
    def domain(self) -> tuple[float, float, float, float]:
        """x and y limits that hold every point, every ridge and the top of the roofs."""
        xs = [point.intensity for point in self.points] + [ridge.intensity for ridge in self.ridges]
        ys = [point.flops_per_s for point in self.points]
        tops = [
            _value(roof) for roof in self.roofs.known if roof.unit == COMPUTE and self._shown(roof)
        ]
        low, high = min(xs, default=0.1) / 6, max(xs, default=10.0) * 6
        bottom = min(ys, default=max(tops, default=1e9) / 100) / 3
        return low, high, bottom, max([*tops, *ys, bottom * 10]) * 2.5

    def _shown(self, roof: Ceiling) -> bool:
        return not roof.dtype or roof.dtype in self.dtypes or not self.dtypes

    @cached_property
    def lines(self) -> list[Line]:
        """Slopes up to the highest peak, peaks from the fastest slope on."""
        left, right, _, top = self.domain
        slopes = [_value(roof) for roof in self.roofs.known if roof.unit == MEMORY]
        peaks = [_value(r) for r in self.roofs.known if r.unit == COMPUTE and self._shown(r)]
        binding = [self.roofs.memory(), *(self.roofs.compute(dtype) for dtype in self.dtypes)]
        found = []
        for roof in self.roofs.known:
            value, binds = _value(roof), roof in binding
            if roof.unit == MEMORY:
                end = max(left * 1.01, min(right, max(peaks, default=top) / value))
                found.append(Line(roof, (left, end), (left * value, end * value), True, binds))
            elif roof.unit == COMPUTE:
                start = min(right / 1.01, max(left, value / max(slopes, default=value / left)))
                found.append(Line(roof, (start, right), (value, value), self._shown(roof), binds))
        return found

    @cached_property
    def impossible(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """The outline of what lies above the highest roof that was measured or promised."""
        founded = [roof for roof in self.roofs.known if roof.source != "modelled"]
        slope = max((_value(r) for r in founded if r.unit == MEMORY), default=0.0)
        peaks = [_value(r) for r in founded if r.unit == COMPUTE and self._shown(r)]
        if not slope or not peaks:
            return None
        left, right, _, top = self.domain
        peak, ridge = max(peaks), min(right, max(left, max(peaks) / slope))
        xs = (left, ridge, right, right, left)
        return xs, (min(peak, slope * left), min(peak, slope * ridge), peak, top, top)

    def as_json(self) -> dict[str, Any]:
        """The whole chart, for its script and for download."""
        return {
            "case": self.case or None,
            "roofs": to_json(self.roofs.ceilings),
            "roofs_missing": self.roofs.reason or None,
            "ridges": to_json(self.ridges),
            "points": to_json(self.points),
            "lines": to_json(self.lines),
            "domain": list(self.domain),
            "impossible": to_json(self.impossible),
        }


def _timed(evaluation: Evaluation) -> list[CaseResult]:
    """Scored cases with a time, of an evaluation that passed as a whole."""
    if evaluation.speedup is None:
        return []
    return [case for case in evaluation.scored if case.timing]
