"""One allocation of a simulated kernel's memory, and what is remembered about each of its parts.

Owns bytes, shadow arrays and the words for a place in a tensor. A granule is the smallest part that
is told apart, at first an element of the tensor; the shadow holds for each one which access wrote
it last and which read it last. It decides nothing: `memory` compares accesses.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
UNWRITTEN, HOST = 0, 1  # accesses before the first of any kernel
TAG = 1 << 60  # no address of a real process has this bit
WINDOW_BITS = 40  # each allocation lies in the middle of a window of its own: 1 TiB
POISON = 0xFF


@dataclass(frozen=True)
class Element:
    """What is accessed: its storage, bits that no honest value has, and bits as numbers."""

    storage: Any
    poison: Any
    numbers: Callable[[Array], Array]

    def words(self, bits: Any) -> str:
        value = self.numbers(np.atleast_1d(np.asarray(bits, dtype=self.storage)))[0]
        return f"{value:.6g}" if value.dtype.kind == "f" else str(value)


class View:
    """A tensor as it was passed or made: what element offsets mean."""

    def __init__(self, tensor: Any) -> None:
        self.shape, self.strides = tuple(tensor.shape), tuple(tensor.stride())
        self.itemsize = tensor.element_size()
        self.start = tensor.storage_offset() * self.itemsize

    def words(self, offset: int) -> str:
        """`3, 17` for a byte offset of the storage; the first index may lie beyond the shape."""
        element = (offset - self.start) // self.itemsize
        if not self.shape:
            return str(element)
        order = sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis])
        index = [0] * len(self.shape)
        for axis in order:
            if self.strides[axis] > 0 and self.shape[axis] > 1:
                index[axis], element = divmod(element, self.strides[axis])
        if element:  # what no stride explains, as an extra distance along the fastest one
            index[order[-1]] += element
        return ", ".join(map(str, index))


class Allocation:
    """`base` is its made-up address: addresses carry their allocation, however far they stray."""

    def __init__(self, storage: Any, number: int, view: View) -> None:
        self.storage = storage  # kept alive, so that no address is ever used twice
        self.nbytes = storage.nbytes()
        self.real = storage.data_ptr()
        self.base = TAG + (number << WINDOW_BITS) + (1 << (WINDOW_BITS - 1))
        self.view, self.number = view, number
        self.names: list[str] = []  # of the parameters it is passed as, in the launch at hand
        self.input = ""
        self.stored_at = 0  # the line of the last store
        raw = (ctypes.c_ubyte * self.nbytes).from_address(self.real)
        self.bytes: Array = np.frombuffer(raw, dtype=np.uint8)
        self.granule = max(1, view.itemsize)
        self.writer = self._shadow(HOST)
        self.plain = self._shadow(HOST)  # the last writer that was not atomic
        self.reader = self._shadow(HOST)
        self.many = np.zeros(len(self.writer), dtype=bool)
        self._typed: dict[Any, Array] = {}

    def _shadow(self, access: int) -> Array:
        return np.full(-(-self.nbytes // self.granule), access, dtype=np.int32)

    @property
    def name(self) -> str:
        return "/".join(self.names) or self.input or f"tensor {self.number}"

    def forget(self) -> None:
        """It is fresh memory now: nobody has written it, and it holds NaN."""
        self.bytes[:] = POISON
        self.writer[:] = UNWRITTEN

    def refine(self, width: int) -> None:
        """Tell smaller parts apart from now on: an access is no multiple of a granule."""
        times = self.granule // width
        self.granule = width
        length = -(-self.nbytes // width)
        for name in ("writer", "plain", "reader", "many"):
            setattr(self, name, np.repeat(getattr(self, name), times)[:length])

    def granules(self, offsets: Array, width: int) -> Array:
        """The granules of some elements: [lanes] where one is enough, else [lanes, parts]."""
        common = math.gcd(self.granule, width)
        if common == self.granule == width:
            places = offsets // width
            if not (offsets - places * width).any():
                return places
        stray = math.gcd(common, int(np.gcd.reduce(offsets)))
        if stray < self.granule:
            self.refine(stray)
        return (offsets // self.granule)[:, None] + np.arange(width // self.granule)

    def typed(self, storage: Any) -> Array:
        """All its whole elements of a numpy dtype, in place."""
        if storage not in self._typed:
            whole = self.nbytes // storage.itemsize * storage.itemsize
            self._typed[storage] = self.bytes[:whole].view(storage)
        return self._typed[storage]

    def read(self, offsets: Array, storage: Any) -> Array:
        if self.aligned(offsets, storage):
            return self.typed(storage)[offsets // storage.itemsize]
        places = offsets[:, None] + np.arange(storage.itemsize)
        return np.ascontiguousarray(self.bytes[places]).view(storage)[:, 0]

    def write(self, offsets: Array, values: Array) -> None:
        if self.aligned(offsets, values.dtype):
            self.typed(values.dtype)[offsets // values.dtype.itemsize] = values
            return
        places = offsets[:, None] + np.arange(values.dtype.itemsize)
        self.bytes[places] = np.ascontiguousarray(values).view(np.uint8).reshape(places.shape)

    @staticmethod
    def aligned(offsets: Array, storage: Any) -> bool:
        return storage.itemsize == 1 or not (offsets % storage.itemsize).any()

    def of_tensor(self, tensor: Any) -> Array:
        """The last writers as the tensor sees them: [*shape, parts of an element], in place."""
        view = View(tensor)
        if view.itemsize % self.granule or view.start % self.granule:
            self.refine(math.gcd(math.gcd(view.itemsize, view.start), self.granule))
            return self.of_tensor(tensor)
        parts = view.itemsize // self.granule
        steps = [stride * parts * self.writer.itemsize for stride in view.strides]
        first = self.writer[view.start // self.granule :]
        return np.lib.stride_tricks.as_strided(
            first, (*view.shape, parts), (*steps, self.writer.itemsize)
        )


@dataclass(frozen=True)
class Part:
    """Lanes of one access that lie in one allocation; `lanes` None means all that are active."""

    allocation: Allocation
    offsets: Array
    lanes: Array | None
