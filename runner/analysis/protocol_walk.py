"""Where a walk through a kernel stands: the world, the values known so far, the events so far.

Owns the look-up of values and what is said where they do not suffice. Control flow is in
`protocol_unroll`, the meaning of operations in `protocol_operations`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from runner.analysis.findings import Source
from runner.analysis.protocol_events import Barrier, Buffer, Event, Process, Program, View
from runner.analysis.protocol_ir import VALUE, Module, Op
from runner.analysis.protocol_values import Domain, Unknown, World, leaf

Value = int | Unknown | View
MAX_EVENTS = 4_000  # of one partition; a kernel that needs more is not searched
_FRESH = frozenset({"tt.atomic_cas", "tt.atomic_rmw"})  # another value each time


class NotUnderstood(Exception):
    """An operation or a value that the model has no words for; with its name and line."""

    def __init__(self, what: str, source: Source | None = None) -> None:
        super().__init__(what)
        self.what, self.source = what, source


class NoSuchSlot(Exception):
    """A slot beyond the end of its buffer is named; the path there is certain in this world."""

    def __init__(self, view: View, index: int, source: Source | None) -> None:
        super().__init__(f"slot {index} of {view.name}")
        self.view, self.index, self.source = view, index, source


@dataclass(eq=False)
class Undecided(Exception):
    """The path depends on an unknown. `purpose` is trips, branch, slot or phase.

    `nests`: trips of a loop around another loop that matters. `slots`: how many there are.
    `trip`: how often the loop whose condition it is has run.
    """

    purpose: str
    value: Unknown
    source: Source | None
    nests: bool = False
    slots: int = 0
    trip: int = 0


@dataclass
class Budget:
    """How many operations may still be walked, in all worlds together."""

    operations: int


class Walk:
    """One walk through one world; `process` is the partition that is walked now."""

    def __init__(self, module: Module, world: World, budget: Budget) -> None:
        self.module, self.world, self.budget = module, world, budget
        self.program = Program([Process("default")], {})
        self.process = 0
        self.values: dict[str, Value] = {}
        self.buffers: dict[Op, Buffer] = {}
        self.steps = 0
        self.depth = 0

    def count_step(self, op: Op) -> None:
        self.steps += 1
        self.budget.operations -= 1
        if self.budget.operations < 0:
            raise NotUnderstood("more operations than this analysis walks", self.source(op))

    def emit(self, event: Event) -> None:
        process = self.program.processes[self.process]
        if len(process.events) >= MAX_EVENTS:
            raise NotUnderstood(f"a partition of more than {MAX_EVENTS} events", event.source)
        process.add(event, self.process)

    def source(self, op: Op) -> Source | None:
        return self.module.source(op.loc)

    # Values that are there

    def value(self, name: str) -> Value:
        try:
            return self.values[name]
        except KeyError:
            raise NotUnderstood(f"the value {name}") from None

    def scalar(self, name: str, op: Op) -> int | Unknown:
        value = self.value(name)
        if isinstance(value, View):
            raise NotUnderstood(f"{op.name} on a buffer", self.source(op))
        return value

    def known(self, name: str, op: Op, purpose: str, slots: int = 0) -> int:
        """The integer behind a name. Raises Undecided where the world leaves it open."""
        value = self.scalar(name, op)
        if isinstance(value, Unknown):
            raise Undecided(purpose, value, self.source(op), slots=slots)
        return value

    def holds(self, name: str | None, op: Op) -> bool:
        """Whether a predicate lets the operation happen; none always does."""
        return name is None or self.known(name, op, "branch") != 0

    def view(self, name: str, op: Op) -> View:
        value = self.value(name)
        if not isinstance(value, View):
            raise NotUnderstood(f"{op.name} on a buffer of unknown origin", self.source(op))
        return value

    def barrier(self, name: str, op: Op) -> Barrier:
        view = self.view(name, op)
        if view.high - view.low != 64:
            raise NotUnderstood(f"{op.name} on several barriers at once", self.source(op))
        return Barrier(view.buffer, view.low // 64)

    # Values that are made

    def leaf(
        self,
        identity: tuple[object, ...],
        label: str,
        domain: Domain = Domain.natural,
        divisibility: int = 1,
    ) -> int | Unknown:
        return self.chosen(leaf(identity, label, domain, divisibility))

    def chosen(self, value: int | Unknown) -> int | Unknown:
        """The value that this world gives an unknown, or the unknown itself."""
        return self.world.known.get(value.key, value) if isinstance(value, Unknown) else value

    def opaque(self, op: Op, fresh: bool = False) -> None:
        """Results that are not followed: equal operations on equal operands are one unknown."""
        operands = tuple(self.value(name) for name in op.operands if name in self.values)
        keys = tuple(o.key if isinstance(o, Unknown) else o for o in operands)
        moment = (self.process, self.steps) if fresh or op.name in _FRESH else ()
        domain = Domain.flag if re.search(r"(^|-> )i1$", op.types) else Domain.natural
        label = self._label(op)
        for number, result in enumerate(op.results):
            identity = (*_signature(op), keys, number, moment)
            self.values[result] = self.leaf(identity, label, domain)

    def _label(self, op: Op) -> str:
        source = self.source(op)
        where = f" of line {source.line}" if source else ""
        return f"{self.module.label(op.loc) or op.name}{where}"


@cache
def _signature(op: Op) -> tuple[str, ...]:
    """What the operation computes, without the names of its operands."""
    return (op.name, VALUE.sub("%", op.body), op.types)
