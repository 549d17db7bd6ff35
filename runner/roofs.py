"""How near a measured rate comes to what a device gives: the roofs that bind, and the share.

Of several figures for one roof the best-founded decides: what was measured here before a datasheet
before a model. Owns no chart and no measurement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from runner.results import CaseResult, Ceiling

PREFERENCE = ("measured", "datasheet", "modelled")
MEMORY, COMPUTE = "B/s", "FLOP/s"


@dataclass(frozen=True)
class Share:
    """The part of `roof` that a case reaches. Above 1, `above` names what can explain it."""

    roof: Ceiling
    fraction: float
    above: str = ""

    @property
    def words(self) -> str:
        """`78% of DRAM copy (measured)`."""
        words = f"{self.fraction:.0%} of {self.roof.name} ({self.roof.source})"
        return f"{words}; {self.above}" if self.above else words


def memory(ceilings: Iterable[Ceiling]) -> Ceiling | None:
    """The roof of main memory: the slowest of the best-founded bandwidths."""
    return min(_preferred(ceilings, MEMORY), key=_value, default=None)


def compute(ceilings: Iterable[Ceiling], dtype: str) -> Ceiling | None:
    """The highest of the best-founded peaks for a data type."""
    fitting = [roof for roof in ceilings if roof.dtype in ("", dtype)]
    return max(_preferred(fitting, COMPUTE), key=_value, default=None)


def share(ceilings: Iterable[Ceiling], case: CaseResult) -> Share | None:
    """Of the roof that binds at the case's intensity; None without a timing or without a roof."""
    ceilings, intensity, reached = tuple(ceilings), case.intensity, case.flops_per_second
    if not intensity or not reached:
        return None
    heights = []
    if (roof := memory(ceilings)) is not None:
        heights.append((_value(roof) * intensity, roof))
    if (roof := compute(ceilings, case.dtype)) is not None:
        heights.append((_value(roof), roof))
    if not heights:
        return None
    height, roof = min(heights, key=lambda each: each[0])
    fraction = reached / height
    return Share(roof, fraction, _explained(ceilings, intensity, reached) if fraction > 1 else "")


def _explained(ceilings: Iterable[Ceiling], intensity: float, reached: float) -> str:
    """The slowest memory level that such a rate does not exceed."""
    for roof in sorted(_preferred(ceilings, MEMORY), key=_value):
        fraction = reached / (_value(roof) * intensity)
        if fraction <= 1:
            return f"{fraction:.0%} of {roof.name}: part of the data stayed in cache"
    return "above every memory roof: to be explained before it is believed"


def _preferred(ceilings: Iterable[Ceiling], unit: str) -> list[Ceiling]:
    found = [roof for roof in ceilings if roof.unit == unit and roof.value]
    for source in PREFERENCE:
        if chosen := [roof for roof in found if roof.source == source]:
            return chosen
    return []


def _value(roof: Ceiling) -> float:
    return roof.value or 0.0
