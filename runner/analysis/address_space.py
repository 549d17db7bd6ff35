"""What an interpreted kernel asks of memory, and the plain answer: the memory of this process.

`Plain` reads and writes real addresses and watches nothing, so a stray access ends the process as
it would on a device. `memory.Memory` is the one that watches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from runner.analysis.memory_allocation import Element
from runner.analysis.memory_sightings import NoteKind

Array = np.ndarray[Any, Any]
Update = Callable[[Array, Array], Array]  # old values and the lanes' numbers → new values


class AddressSpace(Protocol):
    """Addresses are uint64; a mask of None means every lane, `fill` is what a masked one gets."""

    def pointer(self, tensor: Any, name: str) -> int: ...

    def begin_launch(self, kernel: str, programs: int) -> None: ...

    def begin_program(self, number: int, index: tuple[int, ...]) -> None: ...

    def load(
        self,
        addresses: Array,
        mask: Array | None,
        element: Element,
        fill: Array | None,
        volatile: bool,
    ) -> Array: ...

    def store(
        self, addresses: Array, values: Array, mask: Array | None, element: Element
    ) -> None: ...

    def atomic(
        self,
        addresses: Array,
        mask: Array | None,
        element: Element,
        update: Update,
        acquires: bool,
        releases: bool,
    ) -> Array: ...

    def note(self, kind: NoteKind, text: str) -> None: ...


class Plain:
    """`native` is the extension of triton's own interpreter, which reaches real addresses.

    Masked lanes of a load without `other` hold zeros.
    """

    def __init__(self, native: Any) -> None:
        self.native = native

    def pointer(self, tensor: Any, name: str) -> int:
        return int(tensor.data_ptr())

    def begin_launch(self, kernel: str, programs: int) -> None:
        """Nothing to prepare."""

    def begin_program(self, number: int, index: tuple[int, ...]) -> None:
        """One program after the other, and no two are told apart."""

    def load(
        self,
        addresses: Array,
        mask: Array | None,
        element: Element,
        fill: Array | None,
        volatile: bool,
    ) -> Array:
        storage = element.storage
        if fill is None:
            fill = np.zeros(addresses.shape, dtype=storage)
        filled = np.broadcast_to(fill, addresses.shape).astype(storage, copy=False)
        lanes = _lanes(addresses, mask)
        loaded: Array = self.native.load(addresses, lanes, np.ascontiguousarray(filled), storage)
        return loaded

    def store(self, addresses: Array, values: Array, mask: Array | None, element: Element) -> None:
        stored = np.ascontiguousarray(np.broadcast_to(values, addresses.shape))
        self.native.store(addresses, stored, _lanes(addresses, mask))

    def atomic(
        self,
        addresses: Array,
        mask: Array | None,
        element: Element,
        update: Update,
        acquires: bool,
        releases: bool,
    ) -> Array:
        flat = addresses.reshape(-1)
        lanes = np.flatnonzero(_lanes(addresses, mask))
        result = np.zeros(flat.size, dtype=element.storage)
        for turn in turns(flat[lanes]):
            chosen = lanes[turn]
            result[chosen] = old = self.load(flat[chosen], None, element, None, False)
            self.store(flat[chosen], update(old, chosen), None, element)
        return result.reshape(addresses.shape)

    def note(self, kind: NoteKind, text: str) -> None:
        """A device says nothing of it either."""


def turns(places: Array) -> Iterator[Array]:
    """Lanes in rounds, such that no round holds a place twice and order is kept."""
    if places.size < 2:
        yield np.arange(places.size)
        return
    order = np.argsort(places, kind="stable")
    ranked = places[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    lengths = np.diff(np.append(starts, len(ranked)))
    turn = np.arange(len(ranked)) - np.repeat(starts, lengths)
    for number in range(int(lengths.max())):
        yield order[turn == number]


def _lanes(addresses: Array, mask: Array | None) -> Array:
    active = np.ones(1, dtype=bool) if mask is None else mask
    return np.ascontiguousarray(np.broadcast_to(active, addresses.shape))
