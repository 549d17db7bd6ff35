"""Instrumented memory: every load, store and atomic of a simulated kernel passes here.

Owns what lies where. Addresses are made up and carry their allocation, so that a stray one is known
by the tensor it came from. Everything is done for all lanes of an access at once. It knows neither
Triton's operations nor any problem; what races is decided by `memory_races`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from runner.analysis.address_space import turns
from runner.analysis.memory_allocation import (
    HOST,
    TAG,
    UNWRITTEN,
    WINDOW_BITS,
    Allocation,
    Element,
    Part,
    View,
)
from runner.analysis.memory_races import Access, Races
from runner.analysis.memory_sightings import NoteKind, Sightings

Array = np.ndarray[Any, Any]
MAX_SPINS = 20_000


class Waiting(RuntimeError):
    """A program waits for another one; the interpreter runs them one after the other."""


class Memory:
    """All allocations of one candidate's run, and what went wrong in them.

    `file` is the candidate's path as its code objects know it. `undefined` says where masked-off
    lanes of a load without `other` hold garbage: None means everywhere, else the lines where they
    do; elsewhere they hold zeros.
    """

    def __init__(self, file: str, undefined: frozenset[int] | None = None) -> None:
        self.file, self.undefined = file, undefined
        self.allocations: dict[int, Allocation] = {}
        self.windows: dict[int, Allocation] = {}
        self.sightings = Sightings()
        self.races = Races(self.sightings)
        self.notes: dict[tuple[NoteKind, str, int], int] = {}
        self.undefined_lines: set[int] = set()
        self.launched = False
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
            known.of_tensor(tensor)[...] = HOST

    def unwritten(self, tensor: Any) -> Array:
        """Which elements of a tensor nobody has written, in its shape."""
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        if known is None or not tensor.numel():
            return np.zeros(tuple(tensor.shape), dtype=bool)
        return np.asarray((known.of_tensor(tensor) == UNWRITTEN).any(axis=-1))

    def read_by_host(self, tensor: Any) -> None:
        """Torch code of the candidate reads a tensor."""
        unwritten = self.unwritten(tensor)
        if unwritten.any():
            index = ", ".join(map(str, np.argwhere(unwritten)[0].tolist()))
            name, count = self.allocation(tensor).name, int(unwritten.sum())
            self.sightings.add_on_host("uninitialised_read", name, index, self.line(), count)

    def pointer(self, tensor: Any, name: str) -> int:
        """The made-up address of a kernel's argument."""
        known = self.allocation(tensor)
        if name and name not in known.names:
            known.names.append(name)
            known.view = View(tensor)
        return known.base + tensor.storage_offset() * tensor.element_size()

    # launches and programs

    def begin_launch(self, kernel: str, programs: int) -> None:
        self.races.begin_launch(programs)
        self.sightings.kernel, self.sightings.indices = kernel, [()] * programs
        self.launched = True
        for allocation in self.windows.values():
            allocation.names = []

    def begin_program(self, number: int, index: tuple[int, ...]) -> None:
        self.races.order.begin(number)
        self.sightings.indices[number] = index
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
        access = self.races.access(self.line(), element, atomic=volatile)
        lanes = _active(mask)
        result = self._background(addresses, lanes, element, fill, access.line)
        for part in self._parts(addresses, lanes, access, "read"):
            self.races.read(part, access)
            result[_chosen(lanes, part.lanes)] = part.allocation.read(part.offsets, element.storage)
        if volatile:
            self._count_spin(access, addresses, result)
        return result.reshape(addresses.shape)

    def store(self, addresses: Array, values: Array, mask: Array | None, element: Element) -> None:
        """Write values, in the element's storage, where the mask is on."""
        access = self.races.access(self.line(), element, atomic=False)
        lanes = _active(mask)
        flat = np.broadcast_to(values, addresses.shape).reshape(-1)
        for part in self._parts(addresses, lanes, access, "write", flat):
            self._write(part, flat[_chosen(lanes, part.lanes)], access)

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
        line = self.line()
        lanes = _active(None if mask is None else np.broadcast_to(mask, addresses.shape))
        result = np.zeros(addresses.size, dtype=element.storage)
        access = self.races.access(line, element, atomic=True)
        for part in self._parts(addresses, lanes, access, "write"):
            self.races.synchronise(part, acquires, releases)
            self.races.read(part, access, remember=False)
            chosen = _numbers(lanes, part.lanes, addresses.size)
            for turn in turns(part.offsets):
                now = Part(part.allocation, part.offsets[turn], None)
                old = now.allocation.read(now.offsets, element.storage)
                result[chosen[turn]] = old
                self._write(now, update(old, chosen[turn]), access)
        self._count_spin(access, addresses, result)
        return result.reshape(addresses.shape)

    def note(self, kind: NoteKind, text: str) -> None:
        """What the kernel takes for granted and is not so; counted by line."""
        key = (kind, text, self.line())
        self.notes[key] = self.notes.get(key, 0) + 1

    def line(self) -> int:
        """The innermost line of the candidate's file that is being executed; 0 if there is none."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return 0

    def last_writers(self, tensor: Any) -> tuple[Array, Array]:
        """For each element of a tensor, flat: the line that wrote it last, and the number of the
        program in the last launch; 0 and −1 where no kernel, or none of that launch, did.
        """
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        if known is None or not tensor.numel():
            return np.zeros(tensor.numel(), np.int32), np.full(tensor.numel(), -1, np.int32)
        writers, table = known.of_tensor(tensor)[..., 0].reshape(-1), self.races.accesses
        ours = (writers >= self.races.first) & self.launched
        return table.lines(writers), np.where(ours, table.programs(writers), -1).astype(np.int32)

    def stored_at(self, tensor: Any) -> int:
        """The line of the last store to a tensor's allocation; 0 if there was none."""
        known = self.allocations.get(tensor.untyped_storage().data_ptr())
        return known.stored_at if known is not None else 0

    # steps of an access

    def _background(
        self, addresses: Array, lanes: Array | None, element: Element, fill: Any, line: int
    ) -> Array:
        """What a load gives where it does not read: `other`, or what happens to be there."""
        if fill is not None:
            return np.broadcast_to(fill, addresses.shape).reshape(-1).astype(element.storage)
        if lanes is not None and len(lanes) < addresses.size:
            self.undefined_lines.add(line)
            if self.undefined is not None and line not in self.undefined:
                return np.zeros(addresses.size, dtype=element.storage)
        return np.full(addresses.size, element.poison, dtype=element.storage)

    def _parts(
        self,
        addresses: Array,
        lanes: Array | None,
        access: Access,
        how: str,
        values: Array | None = None,
    ) -> Iterator[Part]:
        """Where the active lanes lie; those that lie nowhere are reported and left out."""
        width = access.element.storage.itemsize
        active = addresses.reshape(-1).astype(np.uint64, copy=False)
        active = active if lanes is None else active[lanes]
        if not active.size:
            return
        known = self.windows.get(int(active[0]) >> WINDOW_BITS)
        if known is not None:
            offsets = (active - np.uint64(known.base)).view(np.int64)
            if offsets.min() >= 0 and offsets.max() <= known.nbytes - width:
                yield self._aligned(Part(known, offsets, None), access)
                return
        active = self._made_up(active)
        windows = active >> np.uint64(WINDOW_BITS)
        for window in np.unique(windows):
            chosen = np.flatnonzero(windows == window)
            known = self.windows.get(int(window))
            offsets = (active[chosen] - np.uint64(known.base if known else 0)).view(np.int64)
            inside = (offsets >= 0) & (offsets <= (known.nbytes if known else 0) - width)
            stray = chosen[~inside] if lanes is None else lanes[chosen[~inside]]
            if stray.size:
                place = known, int(offsets[~inside][0])
                self._see_outside(place, access, how, stray, values)
            if known is not None and inside.any():
                yield self._aligned(Part(known, offsets[inside], chosen[inside]), access)

    def _made_up(self, active: Array) -> Array:
        """Real addresses, which the host can pass in tensors, as made-up ones."""
        real = active < np.uint64(TAG)
        known = sorted(self.allocations.values(), key=lambda allocation: allocation.real)
        if not known or not real.any():
            return active
        starts, sizes, bases = (
            np.array([getattr(allocation, name) for allocation in known], dtype=np.uint64)
            for name in ("real", "nbytes", "base")
        )
        place = np.maximum(np.searchsorted(starts, active, side="right"), 1) - 1
        near = real & (active >= starts[place]) & (active < starts[place] + sizes[place])
        return np.where(near, active - starts[place] + bases[place], active)

    def _see_outside(
        self,
        place: tuple[Allocation | None, int],
        access: Access,
        how: str,
        lanes: Array,
        values: Array | None,
    ) -> None:
        value = "" if values is None else access.element.words(values[lanes[0]])
        kind, program = f"out_of_bounds_{how}", self.races.order.program
        self.sightings.add(kind, place, access.line, program, lanes.size, value)

    def _aligned(self, part: Part, access: Access) -> Part:
        """The part itself; a device would stop at an address that its element does not divide."""
        storage = access.element.storage
        if not part.allocation.aligned(part.offsets, storage):
            stray = np.flatnonzero(part.offsets % storage.itemsize)
            place = part.allocation, int(part.offsets[stray[0]])
            program = self.races.order.program
            self.sightings.add("misaligned", place, access.line, program, stray.size)
        return part

    def _write(self, part: Part, values: Array, access: Access) -> None:
        """Write, whatever it runs into; two lanes that write one address differently are seen."""
        known, program = part.allocation, self.races.order.program
        changed = _bits(known.read(part.offsets, values.dtype)) != _bits(values)
        self.races.write(part, access, changed, values)
        known.write(part.offsets, values)
        lost = _bits(known.read(part.offsets, values.dtype)) != _bits(values)
        for kind, lanes in (("input_write", changed & bool(known.input)), ("lane_race", lost)):
            if lanes.any():
                first, count = int(lanes.argmax()), int(lanes.sum())
                place, value = (
                    (known, int(part.offsets[first])),
                    access.element.words(values[first]),
                )
                self.sightings.add(kind, place, access.line, program, count, value)

    def _count_spin(self, access: Access, addresses: Array, values: Array) -> None:
        """Too many equal answers in a row to an atomic or volatile load: it waits for another."""
        first, program = int(addresses.reshape(-1)[0]), self.races.order.program
        state = (access.line, first, values.reshape(-1)[:1].tobytes(), program)
        self._spins = self._spins + 1 if state == self._spin else 0
        self._spin = state
        if self._spins > MAX_SPINS:
            raise Waiting(f"line {access.line} waits for another program")


def _active(mask: Array | None) -> Array | None:
    """The lanes where a mask is on; None for all of them."""
    if mask is None or mask.all():
        return None
    return np.flatnonzero(mask.reshape(-1))


def _chosen(lanes: Array | None, part: Array | None) -> Any:
    """The places in the whole access of a part's lanes, for indexing."""
    if part is None:
        return slice(None) if lanes is None else lanes
    return part if lanes is None else lanes[part]


def _numbers(lanes: Array | None, part: Array | None, size: int) -> Array:
    chosen = _chosen(lanes, part)
    return np.arange(size) if isinstance(chosen, slice) else chosen


def _bits(values: Array) -> Array:
    return values if values.dtype.kind != "f" else values.view(f"u{values.dtype.itemsize}")
