"""Torch's view of shared memory. Owns the dtype names; draws, judges and times nothing."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence

import torch

from runner.evaluate.buffers import CANARY, Layout, Memory, Region
from runner.evaluate.cuda_memory import CudaMemory
from runner.evaluate.host_memory import HostMemory

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int64": torch.int64,
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MEMORY: dict[str, type[HostMemory] | type[CudaMemory]] = {"host": HostMemory, "cuda": CudaMemory}


def warm_torch() -> None:
    """What torch does at its first operation, before a fork: in one thread, no other survives."""
    torch.set_num_threads(1)
    torch.softmax(torch.ones(2, 2), dim=-1)


def create_memory(kind: str, layout: Layout) -> tuple[Memory, list[int]]:
    """New memory on a device of `kind`, and the descriptors that another process adopts."""
    return _MEMORY[kind].create(layout)


def adopt_memory(kind: str, layout: Layout, descriptors: list[int]) -> Memory:
    """Map what another process has created; closes the descriptors."""
    try:
        return _MEMORY[kind].adopt(descriptors, layout)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


class _DeviceBytes:
    """What torch asks of foreign device memory: numba's CUDA array interface, version 3."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def shared_tensor(memory: Memory, region: Region) -> torch.Tensor:
    """The shared tensor itself, contiguous, no copy; dead after `memory.close()`."""
    raw = _bytes(memory, memory.address(region), region.nbytes)
    return raw.view(DTYPES[region.dtype]).view(region.shape)


def _bytes(memory: Memory, address: int, nbytes: int) -> torch.Tensor:
    if memory.kind == "cuda":
        return torch.as_tensor(_DeviceBytes(address, nbytes), device="cuda")
    return torch.frombuffer((ctypes.c_ubyte * nbytes).from_address(address), dtype=torch.uint8)


def canary_damage(memory: Memory, region: Region) -> int | None:
    """How many bytes past a tensor's end the first foreign byte lies, or None."""
    slack = region.span - region.nbytes
    if not slack:
        return None
    foreign = _bytes(memory, memory.address(region) + region.nbytes, slack) != CANARY
    return int(foreign.nonzero()[0]) if bool(foreign.any()) else None


def deliver(memory: Memory, region: Region, value: torch.Tensor) -> None:
    """Copy a contiguous tensor of the region's shape into shared memory of its device.

    On the host by one thread, whatever torch is set to: how long it takes is nobody's choice.
    """
    if memory.kind == "host" and value.is_contiguous() and not value.is_neg():
        ctypes.memmove(memory.address(region), value.data_ptr(), region.nbytes)
    else:
        shared_tensor(memory, region).copy_(value)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Bitwise equality: NaN equals NaN, and −0 differs from 0."""
    kind = BITS[first.element_size()]
    return torch.equal(first.view(kind), second.view(kind))


def poisoned(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    """A tensor of all ones bits, the pattern of `buffers.POISON`."""
    kind = BITS[DTYPES[dtype].itemsize]
    fill = 0xFF if kind is torch.uint8 else -1
    return torch.full(shape, fill, dtype=kind, device=device).view(DTYPES[dtype])


def read_twice(memory: Memory, regions: Sequence[Region]) -> None:
    """Bring a set on the host equally near to whoever uses it next.

    Where tensors lie in the shared cache depends on who wrote them last and how often they were
    read: a sum of vectors against itself came out at 0.75 to 0.9 without this.
    """
    scratch = torch.empty(max(region.nbytes for region in regions), dtype=torch.uint8)
    for _ in range(2):
        for region in regions:
            ctypes.memmove(scratch.data_ptr(), memory.address(region), region.nbytes)
