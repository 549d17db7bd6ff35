"""A whole Warpdeck, started as a person starts it, behind a network that a test can cut."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.chromium import chromium
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
START_S = 90


class Wire:
    """A TCP relay in front of the web server: `cut` drops every connection and refuses new ones."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.whole = threading.Event()
        self.whole.set()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self.whole.clear()
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self.whole.set()

    def close(self) -> None:
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                if not self.whole.is_set():
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                return
            for source, sink in ((client, server), (server, client)):
                self._open.add(source)
                threading.Thread(target=self._relay, args=(source, sink), daemon=True).start()

    def _relay(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65536):
                sink.sendall(chunk)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        self._open.discard(source)
        source.close()


@dataclass
class Deck:
    """A running `manage.py up`. `link` is its one-time sign-in link, through the wire."""

    process: subprocess.Popen[str]
    data: Path
    link: str
    wire: Wire

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"


@pytest.fixture(scope="module")
def deck() -> Iterator[Deck]:
    with raised({}) as raised_deck:
        yield raised_deck


@contextlib.contextmanager
def raised(more: dict[str, str]) -> Iterator[Deck]:
    """A Warpdeck of its own, with more in its environment than a person has who sets nothing."""
    data = Path(tempfile.mkdtemp(prefix="wd-e2e-"))
    port = free_port()
    unset = ("REDIS_URL", "DATABASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")
    environment = {k: v for k, v in os.environ.items() if k not in unset} | more
    process = subprocess.Popen(
        [sys.executable, "manage.py", "up", "--port", str(port)],
        cwd=ROOT,
        env={**environment, "WARPDECK_DATA": str(data), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    wire = Wire(port)
    try:
        path = _sign_in_path(process)
        yield Deck(process, data, f"http://127.0.0.1:{wire.port}{path}", wire)
    finally:
        wire.close()
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        shutil.rmtree(data, ignore_errors=True)


def _sign_in_path(process: subprocess.Popen[str]) -> str:
    """Read what `up` prints until the link; the rest is drained so that `up` never blocks on it."""
    assert process.stdout is not None
    printed: list[str] = []
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        line = process.stdout.readline()
        if not line:
            break
        printed.append(line)
        if found := re.search(r"http://[^/\s]+(/sign-in/\S+)", line):
            threading.Thread(target=process.stdout.read, daemon=True).start()
            return found.group(1)
    raise AssertionError("no sign-in link was printed:\n" + "".join(printed))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as launched:
        yield launched
