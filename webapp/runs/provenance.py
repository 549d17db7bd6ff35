"""Where a measurement comes from, as a reviewer reads it: one line per fact, gaps named.

Reads an evaluation alone and judges nothing. What an older record does not hold is `NOT_RECORDED`:
a fact that is missing is told apart from one that is fine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from runner import units
from runner.results import DeviceInfo, Evaluation

NOT_RECORDED = "not recorded"
AFTER = " after"  # a detail of this suffix is the same quantity when the measurement had ended
# What decides whether a time can be had again; the device's other details are a fold away.
STATE = {
    "cuda": ("SM clock", "memory clock", "power", "temperature"),
    "host": ("load average at start", "cpu MHz"),
}
# Words of a timer's sentence → what the caches hold when a timed call begins.
CACHES = (("hot", "hot"), ("cold", "cold"), ("flushed", "cold"))


@dataclass(frozen=True)
class Fact:
    """`code` is set for what is compared by eye, character by character."""

    name: str
    value: str
    code: bool = False

    @property
    def missing(self) -> bool:
        return self.value == NOT_RECORDED


def facts(evaluation: Evaluation) -> list[Fact]:
    """Device and its state, how it was timed, in what, and of which source."""
    device = evaluation.device
    versions = " · ".join(f"{name} {version}" for name, version in evaluation.versions.items())
    return [
        Fact("device", f"{device.model} ({device.name})"),
        Fact("uuid", device.uuid or NOT_RECORDED, code=True),
        *_state(device),
        Fact("timer", evaluation.timer or NOT_RECORDED),
        Fact("caches", _caches(evaluation.timer)),
        Fact("pairs", _pairs(evaluation)),
        Fact("isolation", evaluation.isolation or NOT_RECORDED),
        Fact("versions", versions or NOT_RECORDED),
        Fact("source", evaluation.source_sha256 or NOT_RECORDED, code=True),
        Fact("took", units.seconds(evaluation.wall_s)),
    ]


def further_details(device: DeviceInfo) -> list[Fact]:
    """Whatever else was recorded of the device, as it was recorded."""
    told = STATE.get(device.kind, ())
    names = (name for name in device.details if name.removesuffix(AFTER) not in told)
    return [Fact(name, device.details[name]) for name in names]


def _state(device: DeviceInfo) -> Iterator[Fact]:
    for name in STATE.get(device.kind, ()):
        yield Fact(name, _before_and_after(name, device.details))


def _before_and_after(name: str, details: Mapping[str, str]) -> str:
    before, after = details.get(name), details.get(name + AFTER)
    if after is None:
        return before or NOT_RECORDED
    if after == before:
        return f"{after}, before and after"
    return f"{before or NOT_RECORDED} → {after}"


def _caches(timer: str) -> str:
    return next((state for word, state in CACHES if word in timer), NOT_RECORDED)


def _pairs(evaluation: Evaluation) -> str:
    """`30 per case`, or the count of each timed case where they differ."""
    counts = {case.case: case.timing.samples for case in evaluation.scored if case.timing}
    if not counts:
        return "not timed"
    if len(set(counts.values())) == 1:
        return f"{next(iter(counts.values()))} per case, baseline and candidate in random order"
    return ", ".join(f"{case}: {count}" for case, count in counts.items())
