"""The least time that a case can take on a device: its compulsory work under the measured roofs.

Owns the floor and every allowance in it. An honest kernel must never fall below, so each doubt
(where the data lie, how reads and writes mix, which unit computes) makes the floor lower. It
measures nothing and knows no process.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernels.catalog import Case
from runner import units
from runner.results import Ceiling, Timing

MARGIN = 1.1  # clocks wander between the hour of the roofs and that of the evaluation
# The roofs are of copies, which also fetch the lines they overwrite and write them back. Reading
# alone measured 2.5 times as fast in L2 and 1.7 in L3 of a Sapphire Rapids host.
READ_GAIN = {"host": 3.0, "cuda": 2.0}
# torch's copy and product stay below what a board can do, by a fifth for the product on an H200;
# where the vendor's figure is known it is taken instead.
BOARD_GAIN = 1.25
FAST_PRODUCT_GAIN = 8 / 7  # one level of Strassen's product leaves out one multiplication in eight
# AMX multiplies bf16 at 32 times the rate of AVX-512 FMA, and three such products make one of fp32.
AMX_GAIN = 32 / 3
UNKNOWN_MATRIX_UNITS = frozenset({"sme", "sme2"})
# Units that can produce results of a dtype's accuracy: TF32 products in three passes make fp32.
UNITS = {"fp32": ("fp32", "tf32"), "bf16": ("bf16",), "fp16": ("bf16",)}


@dataclass(frozen=True)
class Level:
    """A memory level: up to `capacity` bytes of a case can pass at `rate` bytes a second."""

    name: str
    capacity: float
    rate: float


@dataclass(frozen=True)
class Roofs:
    """What a device allows at most, allowances included. `peaks` are FLOP/s by dtype of a case.

    No levels, or no peak for a dtype: not known, and then nothing is held against it.
    """

    levels: tuple[Level, ...]
    peaks: dict[str, tuple[str, float]]


@dataclass(frozen=True)
class Floor:
    us: float
    words: str


@dataclass(frozen=True)
class Finding:
    """`possible` is False only for a time that no allowance explains."""

    possible: bool
    words: str


def roofs(
    kind: str,
    ceilings: Sequence[Ceiling],
    capacities: Mapping[int, int],
    flags: frozenset[str] = frozenset(),
) -> Roofs:
    """From a device's ceilings, the bytes its caches hold by level, and a processor's flags."""
    known = [roof for roof in ceilings if roof.value is not None]
    peaks = [roof for roof in known if roof.unit == "FLOP/s"]
    rates = {roof.name: roof.value or 0.0 for roof in known if roof.unit == "B/s"}
    levels = _host_levels(rates, capacities) if kind == "host" else _cuda_levels(rates, capacities)
    gain = _unit_gain(kind, peaks, flags)
    found = {}
    for dtype, names in UNITS.items():
        fitting = [(roof.name, roof.value or 0.0) for roof in peaks if roof.dtype in names]
        if fitting and gain is not None:
            name, value = max(fitting, key=lambda each: each[1])
            found[dtype] = (name, value * gain * FAST_PRODUCT_GAIN)
    return Roofs(_monotone(levels), found)


def _unit_gain(kind: str, peaks: Sequence[Ceiling], flags: frozenset[str]) -> float | None:
    """How far the best unit may exceed the highest peak; None where nobody can tell."""
    if kind == "cuda":
        return 1.0 if any(roof.source == "datasheet" for roof in peaks) else BOARD_GAIN
    if flags & UNKNOWN_MATRIX_UNITS:
        return None
    return AMX_GAIN if "amx_tile" in flags else 1.0


def _host_levels(rates: Mapping[str, float], capacities: Mapping[int, int]) -> list[Level]:
    """Caches from the fastest on, then memory, where the last cache before it is the third.

    A machine that hides its caches may serve everything from one that we do not know.
    """
    levels: list[Level] = []
    for number in sorted(capacities):
        name = f"L{number} copy"
        if name not in rates:
            return levels
        levels.append(Level(name, capacities[number], rates[name] * READ_GAIN["host"]))
    if 3 in capacities and "DRAM copy" in rates:
        levels.append(Level("DRAM copy", math.inf, rates["DRAM copy"] * READ_GAIN["host"]))
    return levels


def _cuda_levels(rates: Mapping[str, float], capacities: Mapping[int, int]) -> list[Level]:
    """L2 is flushed before each call, but what a kernel writes may stay in it."""
    if "L2 copy" not in rates:
        return []
    levels = [Level("L2 copy", capacities.get(2, math.inf), rates["L2 copy"] * READ_GAIN["cuda"])]
    if "HBM copy" in rates:
        measured = rates["HBM copy"]
        vendor = rates.get("HBM")
        if vendor is not None:
            levels.append(Level("HBM", math.inf, max(vendor, measured)))
        else:
            levels.append(Level("HBM copy", math.inf, measured * BOARD_GAIN))
    return levels


def _monotone(levels: Sequence[Level]) -> tuple[Level, ...]:
    """A farther level that measured faster sets the pace of the nearer; the last has no end."""
    found: list[Level] = []
    for position, level in enumerate(levels):
        rate = max(other.rate for other in levels[position:])
        found.append(replace(level, rate=rate))
    if found:
        found[-1] = replace(found[-1], capacity=math.inf)
    return tuple(found)


def floor(known: Roofs, bytes_moved: int, flops: int, dtype: str) -> Floor | None:
    """The larger of memory's and arithmetic's share; None where no roof is known."""
    shares = []
    if known.levels:
        shares.append(_memory(known.levels, bytes_moved))
    if dtype in known.peaks:
        name, peak = known.peaks[dtype]
        words = f"{flops:.3g} FLOP at no more than {units.rate_flops(peak, dtype)} ({name})"
        shares.append(Floor(flops / peak * 1e6, words))
    return max(shares, key=lambda share: share.us, default=None)


def _memory(levels: Sequence[Level], bytes_moved: int) -> Floor:
    """As much as fits passes at the rate of the fastest level, the rest at that of the next."""
    left, seconds, slowest = float(bytes_moved), 0.0, levels[0]
    for level in levels:
        if left <= 0:
            break
        here, slowest = min(left, level.capacity), level
        seconds, left = seconds + here / level.rate, left - here
    size, rate = units.bytes_iec(bytes_moved), units.rate_bytes(slowest.rate)
    return Floor(seconds * 1e6, f"{size} through {slowest.name} at no more than {rate}")


def examine(case: Case, timing: Timing, known: Roofs) -> Finding:
    """Hold a measured median against the floor of its case.

    The baseline is ours and cannot cheat: where it would be impossible too, the roofs are wrong.
    """
    least = floor(known, case.bytes_moved, case.flops, case.dtype)
    if least is None:
        return Finding(True, f"{case.name}: not judged, no roof is known for {case.dtype}")
    if timing.baseline_us * MARGIN < least.us:
        words = "by these roofs the baseline would be impossible too; measure them again"
        return Finding(True, f"{case.name}: not judged, {words}")
    possible = timing.median_us * MARGIN >= least.us
    took, limit = units.duration_us(timing.median_us), units.duration_us(least.us)
    words = "took" if possible else "is impossible: took"
    return Finding(possible, f"{case.name}: {words} {took}, the floor is {limit}: {least.words}")
