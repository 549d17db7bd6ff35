"""The roofs of a device, measured once a machine and kept.

Owns the cache and the lease around a measurement; how a roof is measured is the business of
`host_ceilings` and `cuda_ceilings`.
"""

from __future__ import annotations

import json
import os
import tempfile
import threading
from pathlib import Path

from runner.evaluate import cuda_ceilings, host_ceilings
from runner.evaluate.devices import cache_folder, cpu_count, device_info
from runner.evaluate.lease import lease
from runner.results import Ceiling, DeviceInfo
from runner.wire import WireError, canonical, from_json, to_json

FORMAT = 1  # of the file and of what the micro-kernels measure; another number measures anew


def ceilings(
    device: str, *, refresh: bool = False, cancel: threading.Event | None = None
) -> tuple[Ceiling, ...]:
    """Measured, datasheet and modelled roofs. Raises SpecError for a device that is not here.

    The first call on a machine measures for some seconds under the device's lease, and so does
    `refresh`. A roof that could not be obtained has value None and the reason in its detail.
    """
    info = device_info(device)
    path = path_of(info)
    if not refresh and (cached := _read(path)) is not None:
        return cached
    with lease(info.uuid, cancel=cancel):
        if not refresh and (cached := _read(path)) is not None:
            return cached  # another process measured while this one waited
        measure = host_ceilings.measure if info.kind == "host" else None
        roofs = measure() if measure else cuda_ceilings.measure(info)
    if all(roof.value is not None for roof in roofs if roof.source == "measured"):
        _write(path, roofs)  # a failure is not remembered: the next call may succeed
    return roofs


def known(info: DeviceInfo) -> tuple[Ceiling, ...] | None:
    """What was measured before; None when nothing was. Never measures, so it takes no time."""
    return _read(path_of(info))


def path_of(info: DeviceInfo) -> Path:
    cores = f"-{cpu_count()}c" if info.kind == "host" else ""
    return cache_folder() / f"ceilings-{FORMAT}-{info.uuid}{cores}.json"


def _read(path: Path) -> tuple[Ceiling, ...] | None:
    """None when there is no cache, or none that can be read: it is then measured anew."""
    try:
        return tuple(from_json(Ceiling, item) for item in json.loads(path.read_text()))
    except (OSError, ValueError, WireError, TypeError):
        return None


def _write(path: Path, roofs: tuple[Ceiling, ...]) -> None:
    """Whole or not at all; a cache that cannot be written only costs time."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    except OSError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(canonical(to_json(roofs)))
    os.replace(name, path)
