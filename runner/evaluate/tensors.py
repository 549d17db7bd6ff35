"""Torch's view of shared memory. Owns the dtype names; draws, judges and times nothing."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from runner.evaluate.buffers import POISON, Mapped, Region

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int64": torch.int64,
}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def shared_tensor(mapped: Mapped, region: Region) -> torch.Tensor:
    """The shared tensor itself, contiguous, no copy; dead after `mapped.close()`."""
    dtype = DTYPES[region.dtype]
    if region.nbytes == 0:
        return torch.empty(region.shape, dtype=dtype)
    return torch.frombuffer(mapped.view(region), dtype=dtype).view(region.shape)


def deliver(mapped: Mapped, region: Region, value: torch.Tensor) -> None:
    """Copy a contiguous tensor of the region's shape into shared memory, from wherever it lies.

    On the host by one thread, whatever torch is set to: how long it takes is nobody's choice.
    """
    if value.device.type == "cpu" and value.is_contiguous() and not value.is_neg():
        ctypes.memmove(mapped.address(region), value.data_ptr(), region.nbytes)
    else:
        shared_tensor(mapped, region).copy_(value)


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Bitwise equality: NaN equals NaN, and −0 differs from 0."""
    kind = BITS[first.element_size()]
    return torch.equal(first.view(kind), second.view(kind))


def poisoned(shape: tuple[int, ...], dtype: str, device: torch.device) -> torch.Tensor:
    """A tensor of all ones bits, the pattern of `buffers.POISON`."""
    kind = BITS[DTYPES[dtype].itemsize]
    fill = 0xFF if kind is torch.uint8 else -1
    return torch.full(shape, fill, dtype=kind, device=device).view(DTYPES[dtype])


def approach(mapped: Mapped, regions: Sequence[Region]) -> None:
    """Read a set before a timed call on the host, as baseline and candidate both do.

    Where tensors lie in the shared cache depends on who wrote them last and how often they were
    read. Read twice by the process that is timed, then flushed from its private caches, they lie
    equally near on both sides: a sum of vectors against itself came out at 0.75 to 0.9 without
    this. Then the memory that the call's allocations will get is poisoned. By one thread, whatever
    torch is set to: how long it takes is nobody's choice.
    """
    scratch = torch.empty(max(region.nbytes for region in regions), dtype=torch.uint8)
    for _ in range(2):
        for region in regions:
            ctypes.memmove(scratch.data_ptr(), mapped.address(region), region.nbytes)
    del scratch
    outputs = [region for region in regions if region.output]
    dirt = [torch.empty(region.nbytes, dtype=torch.uint8) for region in outputs]
    for memory in dirt:
        ctypes.memset(memory.data_ptr(), POISON, memory.numel())
