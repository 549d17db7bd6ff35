"""What devices this machine has, and what identifies and describes one.

Opens no CUDA context: the driver's own `nvidia-smi` answers. Owns no measurement.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import os
import platform
import shutil
import socket
from pathlib import Path

from runner import processes
from runner.results import DeviceInfo
from runner.spec import SpecError, device_kind

SMI_S = 20.0
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_FIELDS = {
    "name": "model",
    "uuid": "uuid",
    "driver_version": "driver",
    "memory.total": "memory",
    "clocks.sm": "SM clock",
    "clocks.mem": "memory clock",
    "clocks.max.sm": "max SM clock",
    "power.draw": "power",
    "power.limit": "power limit",
    "temperature.gpu": "temperature",
    "compute_cap": "compute capability",
    "mig.mode.current": "MIG",
    "clocks_event_reasons.active": "clock event reasons",
}


_CHANGING = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")


def available_devices() -> list[str]:
    """`host`, then `cuda:0` and on: what `device_info` answers for."""
    return ["host", *(f"cuda:{index}" for index in range(len(_visible_gpus())))]


def device_info(device: str) -> DeviceInfo:
    """Identity, and the state of this moment. Raises SpecError when there is no such device."""
    if device_kind(device) == "host":
        return _host()
    index, gpus = int(device.partition(":")[2] or 0), _visible_gpus()
    if index >= len(gpus):
        offered = ", ".join(available_devices())
        raise SpecError("device", f"{device} is not on this machine.", f"Use one of: {offered}.")
    return _gpu(index, gpus[index])


def cache_folder() -> Path:
    """Where this machine's own measurements and compiled baselines stay between runs."""
    return Path(os.environ.get("WARPDECK_CACHE") or Path.home() / ".cache" / "warpdeck")


def cpu_count() -> int:
    """Cores this process may use: the thread count of baseline and candidate alike."""
    return len(os.sched_getaffinity(0))


def _host() -> DeviceInfo:
    load = os.getloadavg()
    details = {
        "cores": str(cpu_count()),
        "load average at start": f"{load[0]:.2f} {load[1]:.2f} {load[2]:.2f}",
        "architecture": platform.machine(),
        "memory": _memory(),
        "cpu MHz": cpu_information("cpu MHz") or "not reported",
        "caches": cpu_information("cache size") or "not reported",
    }
    return DeviceInfo("host", "host", _model(), host_uuid(), details)


@functools.cache
def host_uuid() -> str:
    """Stable for a machine and says nothing else about it: a digest of its machine id."""
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            identity = Path(path).read_text().strip()
        except OSError:
            continue
        if identity:
            return f"host-{_digest(identity)}"
    return f"host-{_digest(socket.gethostname())}"


def _digest(text: str) -> str:
    return hashlib.sha256(f"warpdeck {text}".encode()).hexdigest()[:16]


def cpu_information(key: str) -> str | None:
    """The first value of a key in /proc/cpuinfo."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return None


@functools.cache
def cache_sizes() -> dict[int, int]:
    """Bytes of each data cache level as one core sees it; empty where the kernel does not say."""
    return dict(found for index in CACHES.glob("index*") if (found := _cache(index)) is not None)


def _cache(index: Path) -> tuple[int, int] | None:
    """Level and bytes of one data cache, None for another kind or where the kernel does not say."""
    try:
        kind = (index / "type").read_text().strip()
        level = int((index / "level").read_text())
        text = (index / "size").read_text().strip()
    except (OSError, ValueError):
        return None
    if kind == "Instruction" or not text[:-1].isdigit():
        return None
    return level, int(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]]


def cache_capacities() -> dict[int, int]:
    """Bytes that the data caches of each level hold over all cores this process may use."""
    instances: dict[tuple[int, str], int] = {}
    for core in os.sched_getaffinity(0):
        for index in (CACHES.parents[1] / f"cpu{core}" / "cache").glob("index*"):
            try:
                shared = (index / "shared_cpu_list").read_text().strip()
            except OSError:
                continue
            if (found := _cache(index)) is not None:
                instances[(found[0], shared)] = found[1]
    capacities: dict[int, int] = {}
    for (level, _), size in instances.items():
        capacities[level] = capacities.get(level, 0) + size
    return capacities


def _model() -> str:
    return cpu_information("model name") or platform.processor() or platform.machine()


def _memory() -> str:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{total / 2**30:.1f} GiB"


def _gpu(index: int, uuid: str) -> DeviceInfo:
    """Older drivers know fewer fields and then refuse the whole query: the least is asked again."""
    values: dict[str, str] = {}
    for fields in (list(_FIELDS), ["name", "uuid", "driver_version"]):
        if rows := _smi(["--query-gpu=" + ",".join(fields), f"--id={uuid}"]):
            values = dict(zip((_FIELDS[field] for field in fields), rows[0], strict=True))
            break
    model, uuid = values.pop("model", "NVIDIA GPU"), values.pop("uuid", uuid)
    values["host"] = _model()
    return DeviceInfo(f"cuda:{index}", "cuda", model, uuid, values)


def state_after(device: DeviceInfo) -> dict[str, str]:
    """What changes on a GPU while it works, once more, under names that end in ` after`."""
    if device.kind != "cuda":
        return {}
    rows = _smi(["--query-gpu=" + ",".join(_CHANGING), f"--id={device.uuid}"])
    if not rows:
        return {}
    return {f"{_FIELDS[field]} after": cell for field, cell in zip(_CHANGING, rows[0], strict=True)}


@functools.cache
def _visible_gpus() -> list[str]:
    """UUIDs in the order of `cuda:0`, `cuda:1` …, as CUDA_VISIBLE_DEVICES narrows them.

    A UUID means the same to the driver, to CUDA and to the lease; an index may not.
    """
    every = [row[0] for row in _smi(["--query-gpu=uuid"])]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return every
    chosen = []
    for name in visible.split(","):
        if name.strip().isdigit() and int(name) < len(every):
            chosen.append(every[int(name)])
        else:
            chosen += [uuid for uuid in every if name.strip() and uuid.startswith(name.strip())]
    return chosen


def _smi(arguments: list[str]) -> list[list[str]]:
    """Rows of a query; none when there is no driver here."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    argv = [tool, *arguments, "--format=csv,noheader"]
    try:
        finished = processes.run(argv, deadline_s=SMI_S, output_bytes=65536)
    except OSError:
        return []
    if finished.status != 0:
        return []
    return [[cell.strip() for cell in row] for row in csv.reader(finished.output.splitlines())]
