"""Instrumented memory: every load, store and atomic of a simulated kernel passes here.

Owns what counts as an error of memory: outside an allocation, never written, in conflict with
another program of the launch. Addresses are made up and carry their allocation, so that a stray one
is known by the tensor it came from. Everything is done for all lanes of an access at once. It knows
neither Triton's operations nor any problem.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.analysis.memory_allocation import (
    HOST,
    POISON,
    TAG,
    UNWRITTEN,
    WINDOW_BITS,
    Allocation,
    View,
)
from runner.analysis.memory_order import Accesses, Order

Array = np.ndarray[Any, Any]
MAX_SIGHTINGS = 64
SYNCHRONISING_LANES = 64  # a lock or counter is one element; a tile of atomics is a sum
MAX_SPINS = 20_000


class Waiting(RuntimeError):
    """A program waits for another one; the interpreter runs them one after the other."""


@dataclass
class Sighting:
    """One kind of error at one line on one tensor: how often, and its first example."""

    kind: str
    kernel: str
    line: int
    tensor: str
    index: str
    program: tuple[int, ...]
    value: str
    other_line: int = 0
    other_program: tuple[int, ...] = ()
    lanes: int = 0
    programs: int = 0


@dataclass(frozen=True)
class Element:
    """What is accessed: its storage, bits that no honest value has, and bits as numbers."""

    storage: Any
    poison: Any
    numbers: Callable[[Array], Array]

    def words(self, bits: Any) -> str:
        return f"{self.numbers(np.atleast_1d(np.asarray(bits, dtype=self.storage)))[0]:.6g}"


@dataclass(frozen=True)
class Part:
    """Lanes of one access that lie in one allocation; `lanes` None means all of them."""

    allocation: Allocation
    offsets: Array
    lanes: Array | None

    def of(self, values: Array) -> Array:
        return values if self.lanes is None else values[self.lanes]


class Memory:
    """All allocations of one candidate's run, and what went wrong in them.

    `file` is the candidate's path as its code objects know it. `undefined` says what masked-off
    lanes of a load without `other` hold: None means garbage everywhere, else the lines where they
    do; elsewhere they hold zeros.
    """

    def __init__(self, file: str, undefined: frozenset[int] | None = None) -> None:
        self.file, self.undefined = file, undefined
        self.allocations: dict[int, Allocation] = {}
        self.windows: dict[int, Allocation] = {}
        self.accesses = Accesses()
        self.sightings: dict[tuple[Any, ...], Sighting] = {}
        self._programs: dict[tuple[Any, ...], set[int]] = {}
        self.notes: dict[tuple[str, int], int] = {}
        self.undefined_lines: set[int] = set()
        self.duplicates = 0
        self.kernel, self.launch = "", -1
        self.indices: list[tuple[int, ...]] = [()]
        self.order, self.first = Order(1), HOST + 1
        self._spin: tuple[Any, ...] = ()
        self._spins = 0

    # allocations

    def allocation(self, tensor: Any) -> Allocation:
        """The allocation behind a tensor; one that is not known yet counts as written."""
        storage = tensor.untyped_storage()
        known = self.allocations.get(storage.data_ptr())
        if known is None or known.nbytes != storage.nbytes():
            number = len(self.windows) + 1
            known = Allocation(storage, number, View(tensor))
            self.windows[known.base >> WINDOW_BITS] = known
            if known.nbytes:
                self.allocations[storage.data_ptr()] = known
        return known

    def fresh(self, tensor: Any) -> None:
        """A tensor that its maker left unwritten."""
        self.allocation(tensor).forget()

    def written(self, tensor: Any) -> None:
        """The host wrote a tensor, or a view of one."""
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        if known is not None and tensor.numel():
            known.of_tensor(tensor, known.writer)[...] = HOST

    def unwritten(self, tensor: Any) -> Array:
        """Which elements of a tensor nobody has written, in its shape."""
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        if known is None or not tensor.numel():
            return np.zeros(tuple(tensor.shape), dtype=bool)
        return (known.of_tensor(tensor, known.writer) == UNWRITTEN).any(axis=-1)

    def pointer(self, tensor: Any, name: str) -> int:
        """The made-up address of a kernel's argument."""
        known = self.allocation(tensor)
        if name and name not in known.names:
            known.names.append(name)
            known.view = View(tensor)
        return known.base + tensor.storage_offset() * tensor.element_size()

    # launches and programs

    def begin_launch(self, kernel: str, programs: int) -> None:
        self.kernel, self.launch = kernel, self.launch + 1
        self.order, self.first = Order(programs), self.accesses.count
        self.indices = [()] * programs
        for allocation in self.windows.values():
            allocation.names = []

    def begin_program(self, number: int, index: tuple[int, ...]) -> None:
        self.order.begin(number)
        self.indices[number] = index
        self._spins = 0

    # accesses

    def load(
        self,
        addresses: Array,
        mask: Array | None,
        element: Element,
        fill: Array | None,
        volatile: bool,
    ) -> Array:
        """The values at some addresses; `fill` where the mask is off, poison where nothing is."""
        line, storage = self.line(), element.storage
        lanes = _active(mask)
        result = self._background(addresses, lanes, element, fill, line)
        access = self._access(line, volatile)
        for part in self._parts(addresses, lanes, storage.itemsize, "read", line):
            self._check_aligned(part, storage, line)
            self._check_read(part, element, access, line, volatile)
            values = part.allocation.read(part.offsets, storage)
            result[_chosen(lanes, part.lanes)] = values
        if volatile:
            self._count_spin(line, addresses, result)
        return result.reshape(addresses.shape)

    def store(self, addresses: Array, values: Array, mask: Array | None, element: Element) -> None:
        """Write values, in the element's storage, where the mask is on."""
        line = self.line()
        lanes = _active(mask)
        flat = np.broadcast_to(values, addresses.shape).reshape(-1)
        access = self._access(line, False)
        stray = (flat, element)
        for part in self._parts(addresses, lanes, values.dtype.itemsize, "write", line, stray):
            self._check_aligned(part, values.dtype, line)
            self._write(part, part.of(flat[_chosen(lanes, None)]), element, access, line)

    def atomic(
        self,
        addresses: Array,
        mask: Array | None,
        element: Element,
        update: Callable[[Array, Array], Array],
        acquires: bool,
        releases: bool,
    ) -> Array:
        """Read, update and write each address, lane after lane where two lanes share one.

        `update(old, lanes)` gives the new values of some lanes. Returns the old ones.
        """
        line, storage = self.line(), element.storage
        lanes = _active(None if mask is None else np.broadcast_to(mask, addresses.shape))
        result = np.zeros(addresses.size, dtype=storage)
        for part in self._parts(addresses, lanes, storage.itemsize, "write", line):
            self._check_aligned(part, storage, line)
            self._synchronise(part, acquires, releases)
            access = self._access(line, True)
            self._check_read(part, element, access, line, True)
            chosen = _numbers(lanes, part.lanes, addresses.size)
            for turn in _turns(part.offsets):
                old = part.allocation.read(part.offsets[turn], storage)
                result[chosen[turn]] = old
                new = update(old, chosen[turn])
                now = Part(part.allocation, part.offsets[turn], None)
                self._write(now, new, element, access, line)
        self._count_spin(line, addresses, result)
        return result.reshape(addresses.shape)

    def note(self, text: str) -> None:
        """Something odd that is no error of memory, with how often it happened."""
        key = (text, self.line())
        self.notes[key] = self.notes.get(key, 0) + 1

    def line(self) -> int:
        """The innermost line of the candidate's file that is being executed; 0 if there is none."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    # the checks

    def _access(self, line: int, atomic: bool) -> int:
        order = self.order
        return self.accesses.add(order.program, order.epoch, line, atomic)

    def _background(
        self, addresses: Array, lanes: Array | None, element: Element, fill: Any, line: int
    ) -> Array:
        """What a load gives where it does not read: `other`, or what happens to be there."""
        storage = element.storage
        if fill is not None:
            return np.broadcast_to(fill, addresses.shape).reshape(-1).astype(storage)
        if lanes is not None and len(lanes) < addresses.size:
            self.undefined_lines.add(line)
            if self.undefined is not None and line not in self.undefined:
                return np.zeros(addresses.size, dtype=storage)
        return np.full(addresses.size, element.poison, dtype=storage)

    def _parts(
        self,
        addresses: Array,
        lanes: Array | None,
        width: int,
        how: str,
        line: int,
        stray: tuple[Array, Element] | None = None,
    ) -> Iterator[Part]:
        """Where the active lanes lie; those that lie nowhere are reported and left out."""
        active = addresses.reshape(-1).astype(np.uint64, copy=False)
        active = active if lanes is None else active[lanes]
        if not active.size:
            return
        known = self.windows.get(int(active[0]) >> WINDOW_BITS)
        if known is not None:
            offsets = (active - np.uint64(known.base)).view(np.int64)
            if offsets.min() >= 0 and offsets.max() <= known.nbytes - width:
                yield Part(known, offsets, None)
                return
        active = self._made_up(active)
        windows = active >> np.uint64(WINDOW_BITS)
        for window in np.unique(windows):
            chosen = np.flatnonzero(windows == window)
            known = self.windows.get(int(window))
            if known is None:
                self._see(f"out_of_bounds_{how}", None, int(active[chosen[0]]), line, chosen.size)
                continue
            offsets = (active[chosen] - np.uint64(known.base)).view(np.int64)
            inside = (offsets >= 0) & (offsets <= known.nbytes - width)
            if not inside.all():
                self._see_outside(known, offsets, inside, how, line, _chosen(lanes, chosen), stray)
            if inside.any():
                yield Part(known, offsets[inside], chosen[inside])

    def _made_up(self, active: Array) -> Array:
        """Real addresses, which the host can pass in tensors, as made-up ones."""
        real = active < np.uint64(TAG)
        if not real.any():
            return active
        known = sorted(self.allocations.values(), key=lambda allocation: allocation.real)
        if not known:
            return active
        starts = np.array([allocation.real for allocation in known], dtype=np.uint64)
        sizes = np.array([allocation.nbytes for allocation in known], dtype=np.uint64)
        bases = np.array([allocation.base for allocation in known], dtype=np.uint64)
        place = np.maximum(np.searchsorted(starts, active, side="right"), 1) - 1
        inside = real & (active >= starts[place]) & (active < starts[place] + sizes[place])
        return np.where(inside, active - starts[place] + bases[place], active)

    def _see_outside(
        self,
        known: Allocation,
        offsets: Array,
        inside: Array,
        how: str,
        line: int,
        lanes: Array,
        stray: tuple[Array, Element] | None,
    ) -> None:
        outside = np.flatnonzero(~inside)
        worst = int(outside[0])
        value = "" if stray is None else stray[1].words(stray[0][lanes[worst]])
        kind = f"out_of_bounds_{how}"
        self._see(kind, known, int(offsets[worst]), line, outside.size, value=value)

    def _check_aligned(self, part: Part, storage: Any, line: int) -> None:
        if not part.allocation.aligned(part.offsets, storage):
            stray = np.flatnonzero(part.offsets % storage.itemsize)
            self._see("misaligned", part.allocation, int(part.offsets[stray[0]]), line, stray.size)

    def _check_read(
        self, part: Part, element: Element, access: int, line: int, atomic: bool
    ) -> None:
        """Was it written, and by nobody who runs at the same time; then remember the reader."""
        known = part.allocation
        places = known.granules(part.offsets, element.storage.itemsize)
        writers = known.writer[places]
        if not writers.all():
            lanes = np.flatnonzero(_any_part(writers == UNWRITTEN))
            self._see("uninitialised_read", known, int(part.offsets[lanes[0]]), line, lanes.size)
        if writers.max() >= self.first:
            conflict = self._conflicts(writers)
            if atomic:
                conflict &= ~self.accesses.atomic(writers)
            self._see_conflict("read_write_race", part, conflict, writers, line, element)
        readers = known.reader[places]
        if readers.max() >= self.first:
            others = (readers >= self.first) & (
                (self.accesses.programs(readers) != self.order.program) | known.many[places]
            )
            known.many[places] = others
        else:
            known.many[places] = False
        known.reader[places] = access

    def _write(self, part: Part, values: Array, element: Element, access: int, line: int) -> None:
        """Write, unless another program runs into it: report that, and write all the same."""
        known, storage = part.allocation, values.dtype
        places = known.granules(part.offsets, storage.itemsize)
        writers, readers = known.writer[places], known.reader[places]
        before = known.read(part.offsets, storage)
        changed = _bits(before) != _bits(values)
        if max(writers.max(), readers.max()) >= self.first:
            self._check_write(part, places, changed, element, access, line, values)
        if known.input and changed.any():
            lanes = np.flatnonzero(changed)
            self._see(
                "input_write",
                known,
                int(part.offsets[lanes[0]]),
                line,
                lanes.size,
                value=element.words(values[lanes[0]]),
            )
        known.write(part.offsets, values)
        lost = _bits(known.read(part.offsets, storage)) != _bits(values)
        if lost.any():
            self._see_lost(part, lost, values, element, line)
        known.writer[places] = access
        known.stored_at = line

    def _check_write(
        self,
        part: Part,
        places: Array,
        changed: Array,
        element: Element,
        access: int,
        line: int,
        values: Array,
    ) -> None:
        writers, readers = part.allocation.writer[places], part.allocation.reader[places]
        changed = _like(changed, places)
        atomic = bool(self.accesses.atomic(np.array([access]))[0])
        conflict = self._conflicts(writers)
        theirs = self.accesses.atomic(writers)
        self.duplicates += int((conflict & ~changed & ~theirs & (not atomic)).sum())
        conflict &= ~(theirs & atomic) & (changed | theirs | atomic)
        self._see_conflict("write_race", part, conflict, writers, line, element, values)
        conflict = self._conflicts(readers)
        many = part.allocation.many[places] & (readers >= self.first)
        if many.any() and not self.order.knows_everyone():
            conflict |= many
        conflict &= changed & ~(self.accesses.atomic(readers) & atomic)
        self._see_conflict("read_write_race", part, conflict, readers, line, element, values)

    def _conflicts(self, accesses: Array) -> Array:
        """Which of these accesses belong to programs that run at the same time as this one."""
        present = accesses >= self.first
        programs = np.where(present, self.accesses.programs(accesses), 0)
        return present & self.order.unordered(programs, self.accesses.epochs(accesses))

    def _synchronise(self, part: Part, acquires: bool, releases: bool) -> None:
        if not (acquires or releases) or part.offsets.size > SYNCHRONISING_LANES:
            return
        for offset in part.offsets.tolist():
            self.order.synchronise((part.allocation.base, offset), acquires, releases)

    def _count_spin(self, line: int, addresses: Array, values: Array) -> None:
        """Too many equal answers in a row to an atomic or volatile load: it waits for another."""
        first = addresses.reshape(-1)[0]
        state = (line, int(first), values.reshape(-1)[:1].tobytes(), self.order.program)
        self._spins = self._spins + 1 if state == self._spin else 0
        self._spin = state
        if self._spins > MAX_SPINS:
            raise Waiting(f"line {line} waits for another program")

    # what was seen

    def _see_conflict(
        self,
        kind: str,
        part: Part,
        conflict: Array,
        others: Array,
        line: int,
        element: Element,
        values: Array | None = None,
    ) -> None:
        if not conflict.any():
            return
        lanes = np.flatnonzero(_any_part(conflict))
        lane = int(lanes[0])
        other = int(others[lane][conflict[lane]][0] if others.ndim > 1 else others[lane])
        value = part.allocation.read(part.offsets[lane : lane + 1], element.storage)[0]
        if values is not None:
            value = np.broadcast_to(values, part.offsets.shape)[lane]
        self._see(
            kind,
            part.allocation,
            int(part.offsets[lane]),
            line,
            lanes.size,
            value=element.words(value),
            other=other,
        )

    def _see_lost(
        self, part: Part, lost: Array, values: Array, element: Element, line: int
    ) -> None:
        """Two lanes of one store wrote different values to one address."""
        lane = int(np.flatnonzero(lost)[0])
        offset, value = int(part.offsets[lane]), element.words(values[lane])
        self._see("lane_race", part.allocation, offset, line, int(lost.sum()), value=value)

    def _see(
        self,
        kind: str,
        known: Allocation | None,
        offset: int,
        line: int,
        lanes: int,
        *,
        value: str = "",
        other: int = 0,
    ) -> None:
        program = self.order.program
        tensor = known.name if known else ""
        key = (kind, line, tensor, self.kernel)
        seen = self.sightings.get(key)
        if seen is None:
            if len(self.sightings) >= MAX_SIGHTINGS:
                return
            index = known.view.words(offset) if known else hex(offset)
            seen = Sighting(kind, self.kernel, line, tensor, index, self.indices[program], value)
            if other:
                seen.other_line = self.accesses.line(other)
                seen.other_program = self.indices[int(self.accesses.programs(np.array(other)))]
            self.sightings[key] = seen
        seen.lanes += int(lanes)
        self._programs.setdefault(key, set()).add(program)
        seen.programs = len(self._programs[key])

    def saw_on_host(self, kind: str, tensor: Any, line: int) -> None:
        """Something the candidate's own torch code did to a tensor."""
        known = self.allocation(tensor)
        unwritten = self.unwritten(tensor)
        place = np.argwhere(unwritten)[0].tolist() if unwritten.any() else []
        kernel, self.kernel = self.kernel, ""
        key = (kind, line, known.name, "")
        index = ", ".join(map(str, place))
        self.sightings.setdefault(key, Sighting(kind, "", line, known.name, index, (), ""))
        self.sightings[key].lanes += int(unwritten.sum())
        self.kernel = kernel

    def last_writers(self, tensor: Any) -> tuple[Array, Array]:
        """For each element of a tensor, flat: the line that wrote it last, and the number of the
        program in the last launch's grid; 0 and −1 where no kernel, or none of that launch, did.
        """
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        if known is None or not tensor.numel():
            return np.zeros(tensor.numel(), np.int32), np.full(tensor.numel(), -1, np.int32)
        accesses = known.of_tensor(tensor, known.writer)[..., 0].reshape(-1)
        ours = (accesses >= self.first) & (self.launch >= 0)
        programs = np.where(ours, self.accesses.programs(accesses), -1)
        return self.accesses.lines(accesses), programs.astype(np.int32)

    def stored_at(self, tensor: Any) -> int:
        """The line of the last store to a tensor's allocation; 0 if there was none."""
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        return known.stored_at if known is not None else 0


def _active(mask: Array | None) -> Array | None:
    """The lanes where a mask is on; None for all of them."""
    if mask is None or mask.all():
        return None
    return np.flatnonzero(mask.reshape(-1))


def _chosen(lanes: Array | None, part: Array | None) -> Any:
    if part is None:
        return slice(None) if lanes is None else lanes
    return part if lanes is None else lanes[part]


def _numbers(lanes: Array | None, part: Array | None, size: int) -> Array:
    chosen = _chosen(lanes, part)
    return np.arange(size) if isinstance(chosen, slice) else chosen


def _any_part(granules: Array) -> Array:
    return granules if granules.ndim == 1 else np.asarray(granules.any(axis=1))


def _like(lanes: Array, places: Array) -> Array:
    return lanes if places.ndim == 1 else np.broadcast_to(lanes[:, None], places.shape)


def _bits(values: Array) -> Array:
    return values if values.dtype.kind != "f" else values.view(f"u{values.dtype.itemsize}")


def _turns(offsets: Array) -> Iterator[Array]:
    """Lanes in rounds, such that no round holds an address twice and order is kept."""
    if offsets.size == 1:
        yield np.zeros(1, dtype=np.intp)
        return
    order = np.argsort(offsets, kind="stable")
    ranked = offsets[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    lengths = np.diff(np.append(starts, len(ranked)))
    turn = np.arange(len(ranked)) - np.repeat(starts, lengths)
    for number in range(int(lengths.max())):
        yield order[turn == number]


__all__ = ["POISON", "Memory", "Sighting", "Waiting"]
