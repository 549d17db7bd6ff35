"""Memory on a CUDA device that two processes share, mapped region by region through the driver.

Owns its creation, its export as file descriptors and the unmapped address space around each
tensor: a kernel that reaches there faults. The calls are those of the driver's virtual memory
management (CUDA Driver API, "Virtual Memory Management"). Needs a current context, which torch
opens; imports no torch.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_ulonglong, c_ushort, c_void_p

from runner.evaluate.buffers import CANARY, PAGE_BYTES, POISON, Layout, Region

GUARD_BYTES = PAGE_BYTES["cuda"]
_PINNED, _DEVICE, _FILE_DESCRIPTOR, _READ_WRITE = 1, 1, 1, 3  # the driver's enumerators


class CudaMemoryError(RuntimeError):
    """The driver refused; the message names the call and its status."""


class _Location(ctypes.Structure):
    _fields_ = (("type", c_int), ("id", c_int))


class _Flags(ctypes.Structure):
    _fields_ = (
        ("compression", c_ubyte),
        ("rdma", c_ubyte),
        ("usage", c_ushort),
        ("reserved", c_ubyte * 4),
    )


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", c_int),
        ("handles", c_int),
        ("location", _Location),
        ("windows", c_void_p),
        ("flags", _Flags),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", c_int))


_SIGNATURES = {
    "cuMemCreate": [POINTER(c_ulonglong), c_size_t, POINTER(_Properties), c_ulonglong],
    "cuMemExportToShareableHandle": [POINTER(c_int), c_ulonglong, c_int, c_ulonglong],
    "cuMemImportFromShareableHandle": [POINTER(c_ulonglong), c_void_p, c_int],
    "cuMemAddressReserve": [POINTER(c_ulonglong), c_size_t, c_size_t, c_ulonglong, c_ulonglong],
    "cuMemMap": [c_ulonglong, c_size_t, c_size_t, c_ulonglong, c_ulonglong],
    "cuMemSetAccess": [c_ulonglong, c_size_t, POINTER(_Access), c_size_t],
    "cuMemRelease": [c_ulonglong],
    "cuMemUnmap": [c_ulonglong, c_size_t],
    "cuMemAddressFree": [c_ulonglong, c_size_t],
    "cuMemsetD8_v2": [c_ulonglong, c_ubyte, c_size_t],
    "cuCtxGetDevice": [POINTER(c_int)],
    "cuCtxSynchronize": [],
}


@functools.cache
def _driver() -> ctypes.CDLL:
    library = ctypes.CDLL("libcuda.so.1")
    for name, arguments in _SIGNATURES.items():
        getattr(library, name).argtypes = arguments
    return library


def _call(name: str, *arguments: object) -> None:
    """Raises MemoryError where the device has none left, CudaMemoryError for all else."""
    status = getattr(_driver(), name)(*arguments)
    if status == 2:
        raise MemoryError(f"{name}: the device is out of memory")
    if status:
        raise CudaMemoryError(f"{name} returned {status}")


def _device() -> _Location:
    number = c_int()
    _call("cuCtxGetDevice", byref(number))
    return _Location(_DEVICE, number.value)


class CudaMemory:
    """One allocation of the driver per region, freed when the last process has unmapped it."""

    kind = "cuda"

    def __init__(self, handles: list[int], layout: Layout) -> None:
        """Map the driver's handles, one per region, and give them back."""
        self.layout = layout
        self._addresses: dict[int, int] = {}
        for handle, region in zip(handles, layout.regions, strict=True):
            self._addresses[region.offset] = _mapped(handle, region.span)
            _call("cuMemRelease", handle)

    @classmethod
    def create(cls, layout: Layout) -> tuple[CudaMemory, list[int]]:
        """New memory, and a descriptor per region with which another process maps it."""
        properties = _Properties(_PINNED, _FILE_DESCRIPTOR, _device())
        handles, descriptors = [], []
        for region in layout.regions:
            handle, descriptor = c_ulonglong(), c_int()
            _call("cuMemCreate", byref(handle), region.span, byref(properties), 0)
            _call("cuMemExportToShareableHandle", byref(descriptor), handle, _FILE_DESCRIPTOR, 0)
            os.set_inheritable(descriptor.value, False)
            handles.append(handle.value)
            descriptors.append(descriptor.value)
        return cls(handles, layout), descriptors

    @classmethod
    def adopt(cls, descriptors: list[int], layout: Layout) -> CudaMemory:
        handles = []
        for descriptor in descriptors:
            handle = c_ulonglong()
            _call("cuMemImportFromShareableHandle", byref(handle), descriptor, _FILE_DESCRIPTOR)
            handles.append(handle.value)
        return cls(handles, layout)

    def address(self, region: Region) -> int:
        return self._addresses[region.offset]

    def poison(self, region: Region) -> None:
        if region.nbytes:
            _call("cuMemsetD8_v2", self.address(region), POISON, region.nbytes)
        self.lay_canary(region)

    def lay_canary(self, region: Region) -> None:
        if slack := region.span - region.nbytes:
            _call("cuMemsetD8_v2", self.address(region) + region.nbytes, CANARY, slack)

    def close(self) -> None:
        """A context that a kernel has broken cannot unmap; its memory goes with its process."""
        with contextlib.suppress(CudaMemoryError):
            _call("cuCtxSynchronize")
            for region in self.layout.regions:
                base = self._addresses.pop(region.offset) - GUARD_BYTES
                _call("cuMemUnmap", base + GUARD_BYTES, region.span)
                _call("cuMemAddressFree", base, region.span + 2 * GUARD_BYTES)


def _mapped(handle: int, span: int) -> int:
    """The address of `span` bytes with unmapped address space on both sides."""
    base = c_ulonglong()
    _call("cuMemAddressReserve", byref(base), span + 2 * GUARD_BYTES, 0, 0, 0)
    address = base.value + GUARD_BYTES
    _call("cuMemMap", address, span, 0, handle, 0)
    _call("cuMemSetAccess", address, span, byref(_Access(_device(), _READ_WRITE)), 1)
    return address
