"""Processor time of a process and everything below it, read from outside.

Owns the walk down a process tree and the clocks of its processes. It asks nobody in the tree, so
nobody there can lie about it. What the times mean is the session's business.
"""

from __future__ import annotations

import contextlib
import os
import time

Times = dict[int, int]  # process id → nanoseconds of processor time, of all its threads together


def available() -> bool:
    """Whether this kernel lists a thread's children; else nothing here finds a descendant."""
    return os.path.exists("/proc/thread-self/children")


def tree(pid: int) -> list[int]:
    """`pid` and its descendants; what ends meanwhile is left out."""
    found = [pid]
    for parent in found:  # grows while it is walked
        found += _children(parent)
    return found


def times(pids: list[int]) -> Times:
    """The processor time of each process that still exists."""
    found: Times = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = time.clock_gettime_ns((~pid << 3) | 2)  # clock_getcpuclockid(3)
    return found


def spent_us(before: Times, after: Times) -> float:
    """Microseconds between two readings; all the time of a process that is new in `after`."""
    return sum(ns - before.get(pid, 0) for pid, ns in after.items()) / 1000


def _children(pid: int) -> list[int]:
    """Each thread has a list of the children it started."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found
