"""Shared memory between referee and candidate: where each tensor of a case lies.

Owns layout, poison and canary. A tensor starts on a page of its device; before its first and behind
its last page lies address space that faults, and the slack between its last byte and that holds a
canary. So a write past the end either faults at once or is found afterwards. How memory is made
and mapped is the business of `host_memory` and `cuda_memory`. Never imports torch.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Protocol

from kernels.catalog import ITEM_SIZE, Case, Problem

PAGE_BYTES = {"host": mmap.PAGESIZE, "cuda": 2 << 20}  # by device kind
POISON = 0xFF  # every float of this bit pattern is NaN, every integer −1
CANARY = 0xA5


@dataclass(frozen=True)
class Region:
    """One tensor of one set. `offset` and `span` are bytes, multiples of a device's page."""

    name: str
    output: bool
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    offset: int
    span: int


@dataclass(frozen=True)
class Layout:
    """`sets` independent copies of a case's tensors, `size` bytes in all."""

    regions: tuple[Region, ...]
    sets: int
    size: int

    def of_set(self, number: int) -> tuple[Region, ...]:
        per_set = len(self.regions) // self.sets
        return self.regions[number * per_set : (number + 1) * per_set]


class Memory(Protocol):
    """A layout's memory on one device, mapped into this process, each region fenced by guards."""

    kind: str
    layout: Layout

    def address(self, region: Region) -> int:
        """Where the tensor begins in this process."""
        ...

    def poison(self, region: Region) -> None:
        """Fill a tensor so that an element nobody writes is seen, and lay the canary behind it."""
        ...

    def lay_canary(self, region: Region) -> None: ...

    def close(self) -> None:
        """Unmap; every view of it is dead."""
        ...


def plan(problem: Problem, case: Case, sets: int, kind: str = "host") -> Layout:
    page, regions, offset = PAGE_BYTES[kind], [], 0
    for _ in range(sets):
        for argument in problem.inputs + problem.outputs:
            shape, dtype = case.shape(argument), case.dtype_of(argument)
            nbytes = ITEM_SIZE[dtype]
            for size in shape:
                nbytes *= size
            span = max(page, -(-nbytes // page) * page)
            output = argument in problem.outputs
            regions.append(Region(argument.name, output, dtype, shape, nbytes, offset, span))
            offset += span
    return Layout(tuple(regions), sets, offset)


def set_bytes(problem: Problem, case: Case) -> int:
    """Bytes of one set on the host: what one call reads and writes at least."""
    return plan(problem, case, 1).size
