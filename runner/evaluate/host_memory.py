"""Memory on the host that two processes share: an anonymous file, mapped region by region.

Owns its creation, seals and guard pages. Never imports torch.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os

from runner.evaluate.buffers import CANARY, POISON, Layout, Region

GUARD_BYTES = 1 << 20  # address space only: a write that misses its tensor by rows faults as well
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


class HostMemory:
    """An anonymous file that nobody can resize and that vanishes with its last descriptor."""

    kind = "host"

    def __init__(self, descriptor: int, layout: Layout) -> None:
        """Map it; `descriptor` may be closed afterwards. Raises OSError."""
        self.layout = layout
        self._spans: list[tuple[int, int]] = []
        self._addresses = {
            region.offset: self._map(descriptor, region) for region in layout.regions
        }

    @classmethod
    def create(cls, layout: Layout) -> tuple[HostMemory, list[int]]:
        """New memory, and the descriptor with which another process maps it. Raises OSError."""
        descriptor = os.memfd_create("tensors", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, layout.size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return cls(descriptor, layout), [descriptor]

    @classmethod
    def adopt(cls, descriptors: list[int], layout: Layout) -> HostMemory:
        return cls(descriptors[0], layout)

    def _map(self, descriptor: int, region: Region) -> int:
        reserved = region.span + 2 * GUARD_BYTES
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        base = _checked(_libc.mmap(None, reserved, 0, flags, -1, 0))
        self._spans.append((base, reserved))
        flags = mmap.MAP_SHARED | _MAP_FIXED | _MAP_POPULATE
        access = mmap.PROT_READ | mmap.PROT_WRITE
        return _checked(
            _libc.mmap(base + GUARD_BYTES, region.span, access, flags, descriptor, region.offset)
        )

    def address(self, region: Region) -> int:
        return self._addresses[region.offset]

    def poison(self, region: Region) -> None:
        ctypes.memset(self.address(region), POISON, region.nbytes)
        self.lay_canary(region)

    def lay_canary(self, region: Region) -> None:
        slack = region.span - region.nbytes
        ctypes.memset(self.address(region) + region.nbytes, CANARY, slack)

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
