"""Settings of the C allocator, equal for baseline and candidate, so that reuse is what is timed."""

from __future__ import annotations

import contextlib
import ctypes

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -2, -4, -8
_KEEP_BYTES = 1 << 30


def keep_freed_memory() -> None:
    """Freed memory stays with the process, as in a caching allocator.

    glibc returns each large tensor to the kernel when it is freed, and the next one is zeroed page
    by page again. A call that allocates its output would be charged those faults and one that
    writes to a given buffer would not. Other C libraries have no such switch; nothing happens.
    """
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_MAX, 0)
        mallopt(_M_TRIM_THRESHOLD, _KEEP_BYTES)
        mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """What has been kept goes back to the kernel: a process at rest need not hold it."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
