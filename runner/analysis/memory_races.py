"""Which accesses of a launch run into each other, and which read what nobody wrote.

Owns the rule: two accesses of different programs to one place conflict if one of them changes it,
if not both are atomic, and if no acquire and release puts one before the other. The blame goes to
the one that is not atomic. A value that several programs write alike is no error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.analysis.memory_allocation import HOST, UNWRITTEN, Allocation, Element, Part
from runner.analysis.memory_order import Accesses, Order
from runner.analysis.memory_sightings import Sightings

Array = np.ndarray[Any, Any]
SYNCHRONISING_LANES = 64  # a lock or counter is one element; a tile of atomics is a sum


@dataclass(frozen=True)
class Access:
    """One load, store or atomic of one program; `number` is its place in the shadow arrays."""

    number: int
    line: int
    atomic: bool
    element: Element


class Races:
    """The clocks and shadows of one run."""

    def __init__(self, sightings: Sightings) -> None:
        self.sightings = sightings
        self.accesses = Accesses()
        self.duplicates = 0
        self.begin_launch(1)

    def begin_launch(self, programs: int) -> None:
        """What happened before is ordered before everything that follows."""
        self.order, self.first = Order(programs), self.accesses.count

    def access(self, line: int, element: Element, *, atomic: bool) -> Access:
        order = self.order
        number = self.accesses.add(order.program, order.epoch, line, atomic)
        return Access(number, line, atomic, element)

    def synchronise(self, part: Part, acquires: bool, releases: bool) -> None:
        if not (acquires or releases) or part.offsets.size > SYNCHRONISING_LANES:
            return
        for offset in part.offsets.tolist():
            self.order.synchronise((part.allocation.base, offset), acquires, releases)

    def read(self, part: Part, access: Access, *, remember: bool = True) -> None:
        """`remember` it as a read: an atomic is remembered as a write."""
        known, places = self._places(part, access)
        writers = known.writer[places]
        if not writers.all():
            self._see_unwritten(part, access, writers)
        if writers.max() >= self.first:
            conflict = self._conflicts(writers)
            if access.atomic:
                conflict &= ~self.accesses.atomic(writers)
            self._see("read_write_race", part, access, conflict, writers)
        if remember:
            self._remember_reader(known, places, access)

    def _remember_reader(self, known: Allocation, places: Array, access: Access) -> None:
        """Readers that come before this one need not be remembered; two unordered ones must."""
        readers = known.reader[places]
        if readers.max() < self.first:
            known.many[places] = False
        else:
            kept = (readers >= self.first) & known.many[places]
            known.many[places] = kept | self._conflicts(readers)
        known.reader[places] = access.number

    def write(self, part: Part, access: Access, changed: Array, values: Array) -> None:
        """`changed`: the lanes whose write makes a difference."""
        known, places = self._places(part, access)
        writers, readers = known.writer[places], known.reader[places]
        if max(writers.max(), readers.max()) >= self.first:
            changed = _like(changed, places)
            self._check_writers(part, access, known.plain[places], writers, changed, values)
            self._check_readers(part, access, places, changed, values)
        known.writer[places] = access.number
        if not access.atomic:
            known.plain[places] = access.number
        known.reader[places], known.many[places] = HOST, False
        known.stored_at = access.line

    def _check_writers(
        self,
        part: Part,
        access: Access,
        plain: Array,
        writers: Array,
        changed: Array,
        values: Array,
    ) -> None:
        if access.atomic:
            conflict = self._conflicts(plain)
            self._see("write_race", part, access, conflict, plain, values)
            return
        conflict, theirs = self._conflicts(writers), self.accesses.atomic(writers)
        self.duplicates += int((conflict & ~changed & ~theirs).sum())
        conflict &= changed | theirs
        self._see("write_race", part, access, conflict, writers, values)

    def _check_readers(
        self, part: Part, access: Access, places: Array, changed: Array, values: Array
    ) -> None:
        readers = part.allocation.reader[places]
        conflict = self._conflicts(readers)
        many = part.allocation.many[places] & (readers >= self.first)
        if many.any() and not self.order.knows_everyone():
            conflict |= many
        conflict &= changed
        if access.atomic:
            conflict &= ~self.accesses.atomic(readers)
        self._see("read_write_race", part, access, conflict, readers, values)

    def _places(self, part: Part, access: Access) -> tuple[Allocation, Array]:
        width = access.element.storage.itemsize
        return part.allocation, part.allocation.granules(part.offsets, width)

    def _conflicts(self, accesses: Array) -> Array:
        """Which of these accesses belong to programs that run at the same time as this one."""
        present = accesses >= self.first
        programs = np.where(present, self.accesses.programs(accesses), 0)
        return present & self.order.unordered(programs, self.accesses.epochs(accesses))

    def _see_unwritten(self, part: Part, access: Access, writers: Array) -> None:
        lanes = np.flatnonzero(_any_part(writers == UNWRITTEN))
        place = part.allocation, int(part.offsets[lanes[0]])
        program = self.order.program
        self.sightings.add("uninitialised_read", place, access.line, program, lanes.size)

    def _see(
        self,
        kind: str,
        part: Part,
        access: Access,
        conflict: Array,
        others: Array,
        values: Array | None = None,
    ) -> None:
        if not conflict.any():
            return
        lanes = np.flatnonzero(_any_part(conflict))
        lane = int(lanes[0])
        other = int(others[lane][conflict[lane]][0] if others.ndim > 1 else others[lane])
        if values is None:
            values = part.allocation.read(part.offsets, access.element.storage)
        value = access.element.words(values[lane])
        place = part.allocation, int(part.offsets[lane])
        mine = access.line, self.order.program
        theirs = self.accesses.line(other), int(self.accesses.programs(np.array(other)))
        if access.atomic and not self.accesses.atomic(np.array(other)):
            mine, theirs = theirs, mine
        self.sightings.add(kind, place, *mine, lanes.size, value, theirs)


def _any_part(granules: Array) -> Array:
    return granules if granules.ndim == 1 else np.asarray(granules.any(axis=1))


def _like(lanes: Array, places: Array) -> Array:
    return lanes if places.ndim == 1 else np.broadcast_to(lanes[:, None], places.shape)
