"""One child process run to its end: deadline from outside, output drained and capped, tree killed.

Owns the trusted-but-clumsy children (a compiler, `nvidia-smi`, a probe). Candidate code does not
run here: it runs behind `runner.evaluate`, which also contains processes that try to escape.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from runner import keys

POLL_S = 0.05  # how often a waiting parent looks at the cancel flag
CHUNK = 65536


class Cancelled(Exception):
    """The caller's cancel event was set; every process started for it is gone."""


@dataclass(frozen=True)
class Finished:
    """How a child ended. `status` is negative for a signal; None when the deadline ended it."""

    status: int | None
    output: str
    dropped_bytes: int

    @property
    def timed_out(self) -> bool:
        return self.status is None


def run(
    argv: list[str],
    *,
    deadline_s: float,
    output_bytes: int,
    folder: Path | None = None,
    environment: dict[str, str] | None = None,
    cancel: threading.Event | None = None,
) -> Finished:
    """Run `argv` in its own session, stdout and stderr together. Raises Cancelled, OSError.

    Without an `environment` it gets ours, less the keys.
    """
    child = subprocess.Popen(
        argv,
        cwd=folder,
        env=keys.without_keys(os.environ) if environment is None else environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    assert child.stdout is not None
    drain = Drain(child.stdout.fileno(), output_bytes)
    try:
        ended = _wait(child, drain, time.monotonic() + deadline_s, cancel)
    finally:
        kill_group(child.pid)
        child.wait()
        drain.rest()
        child.stdout.close()
    return Finished(child.returncode if ended else None, drain.text, drain.dropped_bytes)


class Drain:
    """Reads a pipe without blocking, keeps the first `limit` bytes and counts the rest."""

    def __init__(self, descriptor: int, limit: int) -> None:
        self.descriptor = descriptor
        self.limit = limit
        self.kept = bytearray()
        self.dropped_bytes = 0
        self.open = True
        os.set_blocking(descriptor, False)

    def read(self) -> None:
        """Take one chunk, if there is one; `open` turns False at the end of the pipe."""
        try:
            chunk = os.read(self.descriptor, CHUNK)
        except BlockingIOError:
            return
        if not chunk:
            self.open = False
            return
        room = max(0, self.limit - len(self.kept))
        self.kept += chunk[:room]
        self.dropped_bytes += len(chunk) - min(room, len(chunk))

    def rest(self) -> None:
        """Take what is in the pipe now, at most a pipe's capacity: a writer may still be alive."""
        for _ in range(32):
            before = len(self.kept) + self.dropped_bytes
            self.read()
            if not self.open or before == len(self.kept) + self.dropped_bytes:
                return

    @property
    def text(self) -> str:
        text = self.kept.decode("utf-8", errors="replace")
        if self.dropped_bytes:
            text += f"\n… output capped here; {self.dropped_bytes} more bytes were dropped"
        return text


def kill_group(pid: int) -> None:
    """SIGKILL to a whole process group; one that is gone, or only a zombie, is no error."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _wait(
    child: subprocess.Popen[bytes],
    drain: Drain,
    deadline: float,
    cancel: threading.Event | None,
) -> bool:
    """True when the child ended by itself, False at the deadline. Raises Cancelled."""
    with selectors.DefaultSelector() as selector:
        selector.register(drain.descriptor, selectors.EVENT_READ)
        while child.poll() is None:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            if not drain.open:
                selector.close()
                return _wait_silently(child, deadline, cancel)
            if selector.select(min(POLL_S, left)):
                drain.read()
    return True


def _wait_silently(
    child: subprocess.Popen[bytes], deadline: float, cancel: threading.Event | None
) -> bool:
    """As `_wait`, for a child that closed its output but lives on."""
    while time.monotonic() < deadline:
        if cancel is not None and cancel.is_set():
            raise Cancelled
        try:
            child.wait(POLL_S)
            return True
        except subprocess.TimeoutExpired:
            continue
    return False
