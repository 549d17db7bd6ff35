"""What kernels use, as numbers of two candidates can stand side by side.

Reads the resources of an analysis from a log, which may be another version's or a stranger's: what
is missing or no number is a dash. Says what each number was read from, and which way is better only
where that is known whatever the kernel. Draws nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner import units

MAX_KERNELS = 16
MAX_CLASSES = 40
LARGEST = 1e15  # a greater number is nothing that a kernel could use

Numbers = Mapping[str, Any]  # a runner.analysis.resources.KernelResources as JSON
Value = float | int | None
Change = tuple[str, str]


@dataclass(frozen=True)
class Metric:
    """One number of a kernel. `better` is `less`, `more`, or empty where neither is known to be."""

    name: str
    read_from: str
    of: Callable[[Numbers], Value]
    written: Callable[[Value], str]
    better: str = ""


@dataclass(frozen=True)
class Row:
    """A metric of one kernel, beside the same of another where there is one."""

    metric: Metric
    value: Value
    before: Value = None

    @property
    def text(self) -> str:
        return self.metric.written(self.value)

    @property
    def before_text(self) -> str:
        return self.metric.written(self.before)

    @property
    def changed(self) -> bool:
        return self.value != self.before and self.value is not None and self.before is not None

    @property
    def outcome(self) -> str:
        """`better` or `worse`; empty where nothing changed or nobody can say."""
        if self.value is None or self.before is None or not self.changed or not self.metric.better:
            return ""
        less = self.value < self.before
        return "better" if less == (self.metric.better == "less") else "worse"


@dataclass(frozen=True)
class Kernel:
    """One kernel's numbers; `key` names it among others that may have the same name."""

    key: str
    name: str
    line: int | None
    limiter: str
    next_step: str
    numbers: Numbers

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(Row(metric, metric.of(self.numbers)) for metric in METRICS)

    def value(self, name: str) -> str:
        """A metric as it is written."""
        metric = _BY_NAME[name]
        return metric.written(metric.of(self.numbers))

    @property
    def registers(self) -> str:
        return self.value("registers")

    @property
    def spills(self) -> str:
        return self.value("spills")

    @property
    def shared(self) -> str:
        return self.value("shared memory")

    @property
    def occupancy(self) -> str:
        return self.value("occupancy")

    @property
    def mix(self) -> dict[str, int]:
        """How many instructions of each class, most first."""
        counts = {name: _whole(count) for name, count in _object(self.numbers, "mix").items()}
        known = {name: count for name, count in counts.items() if count is not None}
        return dict(sorted(known.items(), key=lambda each: -each[1])[:MAX_CLASSES])


@dataclass(frozen=True)
class KernelDelta:
    """A kernel of each side; one is None where the other side has none to hold against it."""

    a: Kernel | None
    b: Kernel | None

    @property
    def name(self) -> str:
        """Both names where the kernel has another one now."""
        names = dict.fromkeys(each.name for each in (self.a, self.b) if each)
        return " → ".join(names)

    @property
    def rows(self) -> tuple[Row, ...]:
        a, b = self.a.numbers if self.a else {}, self.b.numbers if self.b else {}
        rows = [Row(metric, metric.of(b), metric.of(a)) for metric in METRICS]
        return tuple(row for row in rows if row.value is not None or row.before is not None)

    @property
    def telling(self) -> tuple[Row, ...]:
        """Without what neither side uses at all; that nothing spills is worth a row."""
        return tuple(
            row for row in self.rows if row.value or row.before or row.metric.name == "spills"
        )

    @property
    def changed(self) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.changed)

    @property
    def mix(self) -> tuple[Row, ...]:
        """The instruction classes whose counts differ."""
        a, b = self.a.mix if self.a else {}, self.b.mix if self.b else {}
        rows = [
            Row(Metric(name, "SASS", lambda _: None, _count), b.get(name, 0), a.get(name, 0))
            for name in dict.fromkeys([*b, *a])
        ]
        return tuple(row for row in rows if row.changed)


def read_kernels(resources: Mapping[str, Any]) -> tuple[Kernel, ...]:
    """Every kernel that an analysis has numbers of."""
    listed = resources.get("kernels")
    found = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    named = keyed([_text(each, "kernel") or "kernel" for each in found[:MAX_KERNELS]])
    return tuple(
        Kernel(
            key=key,
            name=_text(each, "kernel") or "kernel",
            line=_whole(each.get("line")),
            limiter=_text(_object(each, "occupancy"), "limiter"),
            next_step=_text(_object(each, "occupancy"), "next_step"),
            numbers=each,
        )
        for key, each in zip(named, found, strict=False)
    )


def keyed(names: Sequence[str]) -> list[str]:
    """A key for each: its name, with `~2` behind it for the second of that name."""
    seen: dict[str, int] = defaultdict(int)
    keys = []
    for name in names:
        seen[name] += 1
        keys.append(name if seen[name] == 1 else f"{name}~{seen[name]}")
    return keys


def paired(a: Sequence[str], b: Sequence[str]) -> list[tuple[int | None, int | None]]:
    """Indexes of kernels that belong together: those of one name in order, then the rest in order.

    In the order of `b`; what only `a` has comes last.
    """
    keys = {key: index for index, key in enumerate(keyed(a))}
    partner = {j: keys.pop(key) for j, key in enumerate(keyed(b)) if key in keys}
    rest = sorted(keys.values())
    for j in range(len(b)):
        if j not in partner and rest:
            partner[j] = rest.pop(0)
    both: list[tuple[int | None, int | None]] = [(partner.get(j), j) for j in range(len(b))]
    return both + [(i, None) for i in rest]


def deltas(a: Sequence[Kernel], b: Sequence[Kernel]) -> tuple[KernelDelta, ...]:
    pairs = paired([each.name for each in a], [each.name for each in b])
    return tuple(
        KernelDelta(None if i is None else a[i], None if j is None else b[j]) for i, j in pairs
    )


def _number(value: Any) -> Value:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    return value if usable and -LARGEST < value < LARGEST else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and _number(value) is not None else None


def _text(numbers: Numbers, name: str) -> str:
    value = numbers.get(name)
    return value if isinstance(value, str) else ""


def _object(numbers: Numbers, name: str) -> Mapping[str, Any]:
    value = numbers.get(name)
    return value if isinstance(value, dict) else {}


def _objects(numbers: Numbers, name: str) -> list[Mapping[str, Any]]:
    value = numbers.get(name)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _plain(name: str) -> Callable[[Numbers], Value]:
    return lambda numbers: _number(numbers.get(name))


def _sum(*names: str) -> Callable[[Numbers], Value]:
    def total(numbers: Numbers) -> Value:
        values = [_number(numbers.get(name)) for name in names]
        known = [value for value in values if value is not None]
        return sum(known) if len(known) == len(values) else None

    return total


def _counted(name: str) -> Callable[[Numbers], Value]:
    """The sum over an object of counts, such as the instruction mix."""

    def total(numbers: Numbers) -> Value:
        if not isinstance(numbers.get(name), dict):
            return None
        counts = [_number(value) for value in _object(numbers, name).values()]
        return sum(value for value in counts if value is not None)

    return total


def _narrowest(operation: str) -> Callable[[Numbers], Value]:
    def width(numbers: Numbers) -> Value:
        accesses = _objects(numbers, "accesses")
        own = [each for each in accesses if each.get("operation") == operation]
        widths = [_number(each.get("bytes_each")) for each in own]
        return min((value for value in widths if value is not None), default=None)

    return width


def _of_wave(name: str) -> Callable[[Numbers], Value]:
    """Of the first launch."""

    def value(numbers: Numbers) -> Value:
        waves = _objects(numbers, "waves")
        return _number(waves[0].get(name)) if waves else None

    return value


def _written(form: Callable[[float], str]) -> Callable[[Value], str]:
    return lambda value: units.MISSING if value is None else form(value)


_count = _written(lambda value: f"{value:,.0f}")
_bytes = _written(units.bytes_iec)
_share = _written(lambda value: f"{value:.0%}")
_ratio = _written(units.significant)

METRICS = (
    Metric("registers", "ptxas, of a thread", _plain("registers"), _count),
    Metric(
        "spills",
        "ptxas, bytes stored and loaded by a thread",
        _sum("spill_store_bytes", "spill_load_bytes"),
        _bytes,
        "less",
    ),
    Metric("stack", "ptxas, of a thread", _plain("stack_bytes"), _bytes, "less"),
    Metric(
        "shared memory",
        "ptxas (static) and launch metadata (dynamic), of a block",
        _sum("static_shared_bytes", "dynamic_shared_bytes"),
        _bytes,
    ),
    Metric("threads", "PTX, of a block", _plain("threads"), _count),
    Metric(
        "occupancy",
        "worked out from registers, shared memory and threads by the target's limits",
        lambda numbers: _number(_object(numbers, "occupancy").get("fraction")),
        _share,
    ),
    Metric("narrowest load", "SASS, global loads of a thread", _narrowest("load"), _bytes, "more"),
    Metric(
        "narrowest store", "SASS, global stores of a thread", _narrowest("store"), _bytes, "more"
    ),
    Metric("matrix instructions", "SASS", _counted("matrix"), _count),
    Metric("TMA instructions", "SASS", _counted("tma"), _count),
    Metric("async copies", "SASS", _plain("async_copies"), _count),
    Metric("barriers", "SASS", _plain("barriers"), _count),
    Metric("instructions", "SASS, of the program text, loops once", _counted("mix"), _count),
    Metric("code", "SASS", _plain("code_bytes"), _bytes),
    Metric(
        "waves",
        "the launch's grid, for the multiprocessors of one board",
        _of_wave("waves"),
        _ratio,
    ),
    Metric(
        "busy share",
        "waves: how much of the device works, averaged over the launch",
        _of_wave("filled"),
        _share,
        "more",
    ),
)
_BY_NAME = {metric.name: metric for metric in METRICS}
