"""How one call is timed on a device: the same code for baseline and candidate.

Owns what lies inside the timed window, which is the call alone. Pairs, order and statistics are
the session's business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from runner.evaluate import malloc
from runner.evaluate.buffers import Memory, Region
from runner.evaluate.devices import cache_sizes, cpu_count
from runner.evaluate.tensors import read_twice

_now_ns = time.perf_counter_ns  # bound here, before candidate code can replace it


@dataclass(frozen=True)
class Measured:
    """One call: its time, what it returned, and on a GPU the host's time until it returned.

    `flush_ns` is what the flush of the GPU's L2 took: a fixed amount of work just before the call.
    """

    ns: int
    returned: Any
    launch_ns: int | None = None
    flush_ns: int | None = None


class Clock(Protocol):
    kind: str
    device: torch.device

    def prepare(self, memory: Memory, regions: Sequence[Region]) -> None:
        """In a process that is not timed: bring caches to the state in which calls are timed."""
        ...

    def measure(self, call: Callable[[], Any], wait_us: float) -> Measured:
        """`wait_us` is how long a GPU is kept busy while the host launches the call."""
        ...

    def settle(self) -> None:
        """Wait until the device is idle."""
        ...

    def release(self) -> None:
        """Give memory that is kept for reuse back to the device."""
        ...


class HostClock:
    """perf_counter_ns directly around the call, the caches of all cores flushed before.

    Without the flush what happens to lie in a cache favours one side: a kernel against itself was
    off by 10% where private caches were not flushed, by 2 to 5%, either way, where the last one was
    not. Caches know no processes, so a process of ours flushes them for both sides and the parent's
    clock sees little beyond the call itself.

    The calling thread starts on the same core each time, free to leave it: a message wakes a
    process on the sender's core, where OpenMP may have bound another of its threads, and the two
    shared it in most calls of one side: softmax against itself came out at 0.6.
    """

    kind = "host"
    FLUSH_BYTES = (8 << 20, 256 << 20)  # at least, at most
    FLUSH_TIMES = 4

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        self._flush: torch.Tensor | None = None
        self._processors = os.sched_getaffinity(0)

    def prepare(self, memory: Memory, regions: Sequence[Region]) -> None:
        """Write several times what the caches hold, on every core.

        A set that fits one core's own cache finds the last one as it is: it would wait longer for
        the flush than for anything else. So does any set where the last cache is too large to
        flush. There it is read twice before, to lie equally near to both sides.
        """
        if self._flush is None:
            self._flush = torch.zeros(self.FLUSH_BYTES[1] // 4)
        self._go_home()
        size, cold = self._flush_bytes(sum(region.nbytes for region in regions))
        if not cold:
            read_twice(memory, regions)
        self._flush[: size // 4].add_(1.0)

    def _flush_bytes(self, set_bytes: int) -> tuple[int, bool]:
        """How much to write, and whether the last cache is then cold too."""
        sizes = cache_sizes()
        private, last = sizes.get(2, 1 << 20), sizes.get(3, 0)
        least, most = self.FLUSH_BYTES
        if set_bytes > private and self.FLUSH_TIMES * last <= most:
            return max(least, self.FLUSH_TIMES * last), True
        return max(least, min(most, 2 * private * cpu_count())), False

    def measure(self, call: Callable[[], Any], wait_us: float) -> Measured:
        self._go_home()
        started = _now_ns()
        returned = call()
        ended = _now_ns()
        return Measured(ended - started, returned)

    def _go_home(self) -> None:
        os.sched_setaffinity(0, {min(self._processors)})
        os.sched_setaffinity(0, self._processors)

    def settle(self) -> None:
        return None

    def release(self) -> None:
        malloc.give_back()


class CudaClock:
    """CUDA events around the call, behind flushes of L2 and a short device-side wait.

    The device has just changed from another process's context. Right after that a matrix product
    came out 3% slower and some calls of any kernel 60 µs; after half a millisecond of memory work
    of our own they do not.

    The wait lets the host enqueue the call while the device is still busy, so that a kernel of
    microseconds is not measured as the time Python takes to launch it; the parent sets it, equal on
    both sides. Flush and wait end before the first event. If the device is still busy when the
    second event has passed, there is work on another stream: it is added to the call.
    """

    kind = "cuda"
    FLUSH_BYTES = 256 << 20  # several times the L2 of every device so far
    WAKING_FLUSHES = 8
    CYCLES_PER_US = 2000  # no GPU so far is clocked much faster, so the wait is no shorter
    LATE_NS = 50_000  # an idle device is synchronised in a few µs

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
        size = max(self.FLUSH_BYTES, 4 * cache)
        self._flush = torch.empty(size // 4, dtype=torch.int32, device=self.device)
        self._sleep = getattr(torch.cuda, "_sleep", None)

    def prepare(self, memory: Memory, regions: Sequence[Region]) -> None:
        """Nothing: a flush by another process would be followed by a change of contexts."""

    def measure(self, call: Callable[[], Any], wait_us: float) -> Measured:
        flush, flushed, start, end = (torch.cuda.Event(enable_timing=True) for _ in range(4))
        torch.cuda.synchronize()
        for _ in range(self.WAKING_FLUSHES):
            self._flush.zero_()
        flush.record()
        self._flush.zero_()
        flushed.record()
        if self._sleep is not None:
            self._sleep(round(wait_us * self.CYCLES_PER_US))
        start.record()
        called = _now_ns()
        returned = call()
        launch_ns = _now_ns() - called
        end.record()
        end.synchronize()
        ended = _now_ns()
        torch.cuda.synchronize()
        late_ns = _now_ns() - ended
        ns = _nanoseconds(start, end) + (late_ns if late_ns > self.LATE_NS else 0)
        return Measured(ns, returned, launch_ns, _nanoseconds(flush, flushed))

    def settle(self) -> None:
        torch.cuda.synchronize()

    def release(self) -> None:
        torch.cuda.empty_cache()


def _nanoseconds(first: torch.cuda.Event, second: torch.cuda.Event) -> int:
    return round(first.elapsed_time(second) * 1e6)


def clock_for(kind: str) -> Clock:
    """`kind` is `host` or `cuda`; the latter opens a context on the only visible device."""
    return CudaClock() if kind == "cuda" else HostClock()
