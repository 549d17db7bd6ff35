"""How one call is timed on a device: the same code for baseline and candidate.

Owns what lies inside the timed window, which is the call alone. Pairs, order and statistics are
the session's business.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch

from runner.evaluate.devices import cache_sizes, cpu_count

_now_ns = time.perf_counter_ns  # bound here, before candidate code can replace it


class Clock(Protocol):
    device: torch.device

    def measure(self, call: Callable[[], Any]) -> tuple[int, Any]:
        """Nanoseconds of one call, and what it returned."""
        ...

    def settle(self) -> None:
        """Wait until the device is idle."""
        ...


class HostClock:
    """perf_counter_ns directly around the call, the private caches of all cores flushed before.

    Without the flush what happens to lie in a core's own cache favours one side: a kernel against
    itself, one thread, was off by 10%. And the calling thread starts on the same core each time,
    free to leave it: a message wakes a process on the sender's core, where OpenMP may have bound
    another of its threads, and the two shared it in most calls of one side: softmax against itself
    came out at 0.6.
    """

    FLUSH_BYTES = (8 << 20, 256 << 20)  # at least, at most

    def __init__(self) -> None:
        self.device = torch.device("cpu")
        private = cache_sizes().get(2, 1 << 20) * cpu_count()
        size = max(self.FLUSH_BYTES[0], min(self.FLUSH_BYTES[1], 2 * private))
        self._flush = torch.zeros(size // 4)
        self._threads = torch.get_num_threads()
        self._processors = os.sched_getaffinity(0)

    def measure(self, call: Callable[[], Any]) -> tuple[int, Any]:
        self._flush_caches()
        self._go_home()
        started = _now_ns()
        result = call()
        ended = _now_ns()
        return ended - started, result

    def _flush_caches(self) -> None:
        """On every core, also for a call that has set torch to fewer threads."""
        threads = torch.get_num_threads()
        if threads != self._threads:
            torch.set_num_threads(self._threads)
        self._flush.add_(1.0)
        if threads != self._threads:
            torch.set_num_threads(threads)

    def _go_home(self) -> None:
        os.sched_setaffinity(0, {min(self._processors)})
        os.sched_setaffinity(0, self._processors)

    def settle(self) -> None:
        return None


class CudaClock:
    """CUDA events around the call, behind a flush of L2 and a short device-side wait.

    The wait lets the host enqueue the call while the device is still busy, so that a kernel of
    microseconds is not measured as the time Python takes to launch it. Flush and wait end before
    the first event. If the device is still busy when the second event has passed, there is work on
    another stream: it is added to the call.
    """

    FLUSH_BYTES = 256 << 20  # several times the L2 of every device so far
    WAIT_CYCLES = 400_000  # about 200 µs
    LATE_NS = 50_000  # an idle device is synchronised in a few µs

    def __init__(self) -> None:
        self.device = torch.device("cuda", 0)
        cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
        size = max(self.FLUSH_BYTES, 4 * cache)
        self._flush = torch.empty(size // 4, dtype=torch.int32, device=self.device)
        self._sleep = getattr(torch.cuda, "_sleep", None)

    def measure(self, call: Callable[[], Any]) -> tuple[int, Any]:
        start = torch.cuda.Event(enable_timing=True)
        end = torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        self._flush.zero_()
        if self._sleep is not None:
            self._sleep(self.WAIT_CYCLES)
        start.record()
        result = call()
        end.record()
        end.synchronize()
        ended = _now_ns()
        torch.cuda.synchronize()
        late_ns = _now_ns() - ended
        elapsed_ns = round(start.elapsed_time(end) * 1e6)
        return elapsed_ns + (late_ns if late_ns > self.LATE_NS else 0), result

    def settle(self) -> None:
        torch.cuda.synchronize()


def clock_for(kind: str) -> Clock:
    """`kind` is `host` or `cuda`; the latter opens a context on the only visible device."""
    return CudaClock() if kind == "cuda" else HostClock()
