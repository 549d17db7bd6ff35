"""One measurement at a time on a physical device: a file lock that dies with its holder.

The lease is taken in the parent: a killed child must not hold the device. The file lies in the
system's temporary folder, so every user and every checkout on a machine meets at the same lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from runner.processes import Cancelled

POLL_S = 0.02


@contextlib.contextmanager
def lease(uuid: str, *, cancel: threading.Event | None = None) -> Iterator[None]:
    """Wait for the device and hold it. Raises Cancelled when `cancel` is set while waiting."""
    descriptor = _open(path_of(uuid))
    try:
        while not _taken(descriptor):
            if cancel is not None and cancel.is_set():
                raise Cancelled
            time.sleep(POLL_S)
        yield
    finally:
        os.close(descriptor)


def path_of(uuid: str) -> Path:
    name = re.sub(r"[^A-Za-z0-9-]", "-", uuid)
    return Path(os.environ.get("WARPDECK_LEASES", tempfile.gettempdir())) / f"warpdeck-{name}.lease"


def _open(path: Path) -> int:
    """Another user's file is opened, not created: sticky folders forbid the latter."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)  # the umask must not lock other users out
        return descriptor


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
