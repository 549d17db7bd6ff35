"""The programs of one machine on the test's own database, each to be killed and started again.

All are the real ones but the device worker, whose measurements are made up (`quick_device`).
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect

from runner.events import CandidatePayload, EvaluationPayload, Event, EventType, MessageKind
from runner.keys import without_keys
from tests.ports import free_port
from webapp.fleet import programs
from webapp.fleet.supervisor import Program
from webapp.fleet.valkey import Valkey, find_binary
from webapp.runs.models import Run

PATIENCE_S = 90.0
LEASE_S = "2"
KINDS = ("agents", "device", "valkey", "web")


class Crew:
    """`extra` is added to the environment that all of them are started from."""

    def __init__(self, logs: Path, extra: dict[str, str] | None = None) -> None:
        self.logs = logs
        self.port = free_port()
        self._folder = Path(tempfile.mkdtemp(prefix="wd-crew-"))  # short: it holds a unix socket
        server = Valkey(find_binary(), self._folder / "valkey.sock", self._folder)
        environment = {
            **os.environ,
            "DATABASE_URL": f"sqlite:///{connection.settings_dict['NAME']}",
            "WARPDECK_LEASE_S": LEASE_S,
            "REDIS_URL": server.url,
            **(extra or {}),
        }
        device = [sys.executable, "-m", "tests.webapp.quick_device", "device@here"]
        self.programs = {
            "valkey": programs.valkey(server, environment),
            "web": programs.web("127.0.0.1", self.port, environment),
            "agents": programs.agents(environment),
            "device": Program("device", device, without_keys(environment)),
            "reconciler": programs.reconciler(environment),
        }
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        for name in self.programs:
            self.start(name)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self, name: str) -> None:
        program = self.programs[name]
        with (self.logs / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                program.argv,
                env=program.environment,
                cwd=settings.BASE_DIR,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self, name: str) -> None:
        """As the kernel does it when memory runs out; started again at once."""
        self.running[name].kill()
        self.running[name].wait()
        self.start(name)

    def kill_during(self, run: Run, seed: float, names: tuple[str, ...]) -> int:
        """Kill these one after the other, each at a random moment of a run that is getting on.

        Returns how many were killed before the run was over.
        """
        chance, seen = random.Random(seed), 0
        for count, name in enumerate(names):
            if not got_on(run, seen):
                return count
            time.sleep(chance.uniform(0.0, 0.4))
            self.kill(name)
            seen = run.last_seq
        return len(names)

    def environment(self, name: str) -> bytes:
        """Of a running program, as the kernel shows it; empty where it is sealed."""
        try:
            return Path(f"/proc/{self.running[name].pid}/environ").read_bytes()
        except OSError:
            return b""

    @property
    def answers(self) -> bool:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with contextlib.closing(client), contextlib.suppress(OSError, http.client.HTTPException):
            client.request("GET", "/sign-in/")
            return client.getresponse().status < 500
        return False


class Reader(threading.Thread):
    """A browser's side of a run's socket, which connects again whenever it is cut off."""

    def __init__(self, crew: Crew, run: Run, user: User) -> None:
        super().__init__(daemon=True)
        client = Client()
        client.force_login(user)
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        self._headers = {"Cookie": f"{settings.SESSION_COOKIE_NAME}={cookie}"}
        self._address = f"127.0.0.1:{crew.port}"
        self._run = run.pk
        self.seqs: list[int] = []
        self.connections = 0
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError, WebSocketException, TimeoutError):
                self._read()
            time.sleep(0.1)

    def _read(self) -> None:
        after = self.seqs[-1] if self.seqs else 0
        address = f"ws://{self._address}/ws/runs/{self._run}/?after={after}"
        origin: Any = f"http://{self._address}"
        with connect(address, additional_headers=self._headers, origin=origin) as socket:
            self.connections += 1
            while not self.over.is_set():
                frame = json.loads(socket.recv(timeout=5))
                self.seqs += [item["seq"] for item in frame.get("items", ())]


def eventually(condition: Callable[[], bool], what: str, seconds: float = PATIENCE_S) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what}"
        time.sleep(0.02)


def ended(run: Run) -> bool:
    run.refresh_from_db()
    return run.state.ended


def got_on(run: Run, seen: int) -> bool:
    """Wait until the run has more than a resumption after event `seen`; False when it is over."""
    eventually(lambda: ended(run) or run.last_seq > seen + 1, f"an event after {seen}")
    return not run.state.ended


def essence(run: Run) -> list[tuple[Any, ...]]:
    """What happened in a run, without times, numbers of events, resumptions and analyses."""
    told = [_told(row.log) for row in run.events.all()]
    return [each for each in told if each is not None]


def _told(event: Event) -> tuple[Any, ...] | None:
    payload = event.decoded
    match payload:
        case CandidatePayload():
            sources = tuple(ref.sha256 for ref in event.artifacts)
            return ("candidate", payload.number, payload.parent, payload.idea, sources)
        case EvaluationPayload():
            found = payload.evaluation
            return ("evaluation", payload.candidate, payload.scope, found.verdict, found.speedup)
    match event.type:
        case EventType.run | EventType.budget | EventType.analysis:
            return None
        case EventType.message if payload.kind is MessageKind.notice:
            return None
        case EventType.message:
            words = payload.text if payload.kind is MessageKind.said else ""
            return ("message", payload.kind, payload.author, words)
        case EventType.tool_call:
            return ("tool_call", payload.tool, json.dumps(payload.arguments, sort_keys=True))
        case EventType.tool_result:
            return ("tool_result", payload.ok)
        case EventType.note:
            return ("note", payload.author, payload.text)
    return (event.type.value,)
