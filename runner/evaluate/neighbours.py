"""Who else uses the device while it is timed: other processes' work on the host, or on a GPU.

Reads what the kernel and NVIDIA's management library (NVML) say; asks no process. What follows from
a sighting is the session's business.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from runner.evaluate import processor
from runner.evaluate.devices import cpu_count

BUSY_SHARE = 0.1  # of all processors of the host; below it medians of pairs do not move
MAX_PROCESSES = 128


@dataclass(frozen=True)
class Sighting:
    """`alone` is None where nobody can tell; `words` are the evidence.

    `share` is how much of the host's processors others used, 0 where that is not the measure.
    """

    alone: bool | None
    words: str
    share: float = 0.0


class Neighbours(Protocol):
    """`begin` before and `end` after a measurement; `own` are the roots of our process trees."""

    def begin(self, own: Sequence[int]) -> None: ...

    def end(self, own: Sequence[int]) -> Sighting: ...


class HostNeighbours:
    """Processor time that neither we nor our children have spent."""

    def begin(self, own: Sequence[int]) -> None:
        self._started = time.monotonic()
        self._before = _busy_s(), _own_times(own)

    def end(self, own: Sequence[int]) -> Sighting:
        busy, ours = self._before
        now = _busy_s()
        if busy is None or now is None:
            return Sighting(None, "this kernel does not say how busy its processors are")
        mine = processor.spent_us(ours, _own_times(own)) / 1e6
        wall = (time.monotonic() - self._started) * cpu_count()
        share = max(0.0, now - busy - mine) / wall
        words = f"others used {share:.0%} of the processors while it was timed"
        return Sighting(share <= BUSY_SHARE, words, share)


class GpuNeighbours:
    """Foreign compute processes on one GPU, as the driver lists them."""

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid

    def begin(self, own: Sequence[int]) -> None:
        self._seen = running(self.uuid)

    def end(self, own: Sequence[int]) -> Sighting:
        now = running(self.uuid)
        if self._seen is None or now is None:
            return Sighting(None, "the driver does not list the processes of this GPU")
        ours = {pid for root in own for pid in processor.tree(root)}
        if not ours & now:
            return Sighting(None, "the driver numbers processes in another namespace")
        foreign = sorted((self._seen | now) - ours)
        if foreign:
            who = ", ".join(f"process {pid}{_name(pid)}" for pid in foreign[:3])
            return Sighting(False, f"{who} used the GPU too")
        return Sighting(True, "the driver listed no process but ours, before and after")


def neighbours_of(kind: str, uuid: str) -> Neighbours:
    return GpuNeighbours(uuid) if kind == "cuda" else HostNeighbours()


def _busy_s() -> float | None:
    """Seconds that all processors together were not idle; time stolen by a hypervisor counts."""
    try:
        with open("/proc/stat") as file:
            values = [int(value) for value in file.readline().split()[1:9]]
    except (OSError, ValueError):
        return None
    user, nice, system, _idle, _waiting, irq, softirq, steal = values
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_times(own: Sequence[int]) -> processor.Times:
    return processor.times([os.getpid(), *(pid for root in own for pid in processor.tree(root))])


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return f" ({file.read().strip()})"
    except OSError:
        return ""


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_bytes", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


def running(uuid: str) -> set[int] | None:
    """Compute processes on a GPU; None where NVML cannot say. Opens no CUDA context."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        listed = library.nvmlDeviceGetComputeRunningProcesses_v3
    except (OSError, AttributeError):
        return None
    device = ctypes.c_void_p()
    found, count = (_Process * MAX_PROCESSES)(), ctypes.c_uint(MAX_PROCESSES)
    if library.nvmlInit_v2():
        return None
    try:
        if library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
            return None
        if listed(device, ctypes.byref(count), found):
            return None
    finally:
        library.nvmlShutdown()
    return {process.pid for process in found[: count.value]}
