"""Shared memory between referee and candidate: where each tensor lies, and how it is mapped.

Owns layout, poison, canaries and guards. A tensor starts on a page; before its first and behind
its last page lie inaccessible guard pages, and the slack between its last byte and those holds a
canary. A write past the end either faults at once or is found afterwards. Never imports torch.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass

from kernels.catalog import ITEM_SIZE, Case, Problem

PAGE = mmap.PAGESIZE
GUARD = 1 << 20  # address space only: a write that misses its tensor by rows faults as well
POISON = 0xFF  # every float of this bit pattern is NaN, every integer −1
CANARY = 0xA5
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_MAP_FIXED, _MAP_POPULATE, _MAP_NORESERVE = 0x10, 0x8000, 0x4000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


@dataclass(frozen=True)
class Region:
    """One tensor of one set. `offset` and `span` are bytes, multiples of a page."""

    name: str
    output: bool
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    span: int


@dataclass(frozen=True)
class Layout:
    """`sets` independent copies of a case's tensors, in one anonymous file of `size` bytes."""

    regions: tuple[Region, ...]
    sets: int
    size: int

    def of_set(self, number: int) -> tuple[Region, ...]:
        per_set = len(self.regions) // self.sets
        return self.regions[number * per_set : (number + 1) * per_set]


def plan(problem: Problem, case: Case, sets: int) -> Layout:
    regions, offset = [], 0
    for _ in range(sets):
        for argument in problem.inputs + problem.outputs:
            shape, dtype = case.shape(argument), case.dtype_of(argument)
            nbytes = ITEM_SIZE[dtype]
            for size in shape:
                nbytes *= size
            span = max(PAGE, -(-nbytes // PAGE) * PAGE)
            output = argument in problem.outputs
            regions.append(Region(argument.name, output, dtype, shape, nbytes, offset, span))
            offset += span
    return Layout(tuple(regions), sets, offset)


def set_bytes(problem: Problem, case: Case) -> int:
    """Bytes of one set: what one call reads and writes at least."""
    return plan(problem, case, 1).size


def create(layout: Layout, name: str) -> int:
    """An anonymous file nobody can resize; it vanishes with its last descriptor. Raises OSError."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, layout.size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


class Mapped:
    """A layout mapped into this process, each region fenced by guard pages."""

    def __init__(self, descriptor: int, layout: Layout) -> None:
        self.layout = layout
        self._spans: list[tuple[int, int]] = []
        self._addresses: dict[int, int] = {}
        for region in layout.regions:
            self._addresses[region.offset] = self._map(descriptor, region)

    def _map(self, descriptor: int, region: Region) -> int:
        reserved = region.span + 2 * GUARD
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        base = _checked(_libc.mmap(None, reserved, 0, flags, -1, 0))
        self._spans.append((base, reserved))
        flags = mmap.MAP_SHARED | _MAP_FIXED | _MAP_POPULATE
        access = mmap.PROT_READ | mmap.PROT_WRITE
        return _checked(
            _libc.mmap(base + GUARD, region.span, access, flags, descriptor, region.offset)
        )

    def address(self, region: Region) -> int:
        return self._addresses[region.offset]

    def view(self, region: Region) -> ctypes.Array[ctypes.c_ubyte]:
        """The tensor's bytes, writable, without a copy; dead after `close`."""
        return (ctypes.c_ubyte * region.nbytes).from_address(self.address(region))

    def poison(self, region: Region) -> None:
        """Fill a tensor so that an element nobody writes is seen, and lay the canary behind it."""
        ctypes.memset(self.address(region), POISON, region.nbytes)
        self.lay_canary(region)

    def lay_canary(self, region: Region) -> None:
        slack = region.span - region.nbytes
        ctypes.memset(self.address(region) + region.nbytes, CANARY, slack)

    def canary_damage(self, region: Region) -> int | None:
        """How many bytes past the end the first foreign byte lies, or None."""
        slack = region.span - region.nbytes
        found = ctypes.string_at(self.address(region) + region.nbytes, slack)
        stripped = found.lstrip(bytes([CANARY]))
        return slack - len(stripped) if stripped else None

    def close(self) -> None:
        for base, size in self._spans:
            _libc.munmap(base, size)
        self._spans.clear()
        self._addresses.clear()


def _checked(address: int | None) -> int:
    if address is None or address == ctypes.c_void_p(-1).value:
        code = ctypes.get_errno()
        raise OSError(code, f"mmap: {os.strerror(code)}")
    return address
