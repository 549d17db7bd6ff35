"""Machine: everything that `up` starts on this computer, from the first child to the last.

Owns the order of starting, what counts as ready, and where others find the parts. How children
are kept alive and ended is the supervisor's business.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from runner.evaluate.devices import available_devices
from webapp.fleet import preflight, programs
from webapp.fleet.models import Worker
from webapp.fleet.supervisor import Child, Supervisor
from webapp.fleet.valkey import Valkey, embedded

BROKER_S = 10.0
READY_S = 90.0
TICK_S = 0.2


class Stopped(Exception):
    """A person asked to stop."""


class NotReady(Exception):
    """A part did not come up in time; the message names it and its log."""


class Machine:
    def __init__(self, host: str, port: int, say: Callable[[str], None]) -> None:
        self.host = host
        self.port = port
        self.stopping = False
        self._say = say
        self._supervisor = Supervisor(settings.DATA / "logs", settings.BASE_DIR, say)
        self._environment = dict(
            os.environ,
            WARPDECK_DATA=str(settings.DATA),
            DJANGO_SETTINGS_MODULE="webapp.settings",
            PYTHONUNBUFFERED="1",
        )
        self._workers: list[Child] = []
        self._valkey: Valkey | None = None

    @property
    def address(self) -> str:
        """Where a browser finds the web: a name that it answers to."""
        name = self.host
        if name not in preflight.LOOPBACK:
            name = settings.ALLOWED_HOSTS[0].lstrip(".")
        return f"http://{f'[{name}]' if ':' in name else name}:{self.port}"

    def start_broker(self) -> None:
        """The embedded Valkey, unless REDIS_URL is set. Raises NoValkey, NotReady."""
        self._supervisor.adopt_orphans()
        if os.environ.get("REDIS_URL"):
            return
        server = self._valkey = embedded(settings.DATA)
        child = self._supervisor.start(programs.valkey(server, self._environment))
        if not self._await(lambda: server.answers, BROKER_S):
            raise NotReady(f"Valkey did not answer within {BROKER_S:g} s; see {child.log}")
        self._environment["REDIS_URL"] = server.url
        _publish("valkey.url", server.url)

    def start_programs(self) -> None:
        start, environment = self._supervisor.start, self._environment
        start(programs.web(self.host, self.port, environment))
        self._workers.append(start(programs.agents(environment)))
        if preflight.can_evaluate():
            for name in available_devices():
                self._workers.append(start(programs.device(name, environment)))
        start(programs.reconciler(environment))
        _publish("web.url", self.address)

    def await_ready(self) -> None:
        """Until the web answers and each worker has registered. Raises NotReady, Stopped."""
        if not self._await(self._web_answers, READY_S):
            log = self._supervisor.logs / f"{programs.WEB}.log"
            raise NotReady(f"the web did not answer within {READY_S:g} s; see {log}")
        if not self._await(lambda: not self._absent(), READY_S):
            for child in self._absent():
                self._say(f"{child.program.name} has not registered yet; see {child.log}")

    def watch(self) -> None:
        """Keep everything running until somebody asks to stop. Raises Stopped."""
        self._await(lambda: False, float("inf"))

    def stop(self) -> None:
        self._supervisor.stop()
        if self._valkey:
            self._valkey.clean_up()
        for name in ("valkey.url", "web.url"):
            (settings.DATA / name).unlink(missing_ok=True)

    def _await(self, condition: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not condition():
            if self.stopping:
                raise Stopped
            if time.monotonic() > deadline:
                return False
            self._supervisor.check()
            time.sleep(TICK_S)
        return True

    def _web_answers(self) -> bool:
        host = self.host if self.host in preflight.LOOPBACK else "127.0.0.1"
        client = http.client.HTTPConnection(host, self.port, timeout=5)
        with contextlib.closing(client), contextlib.suppress(OSError, http.client.HTTPException):
            client.request("GET", "/sign-in/", headers={"Host": self.address.split("//")[1]})
            return client.getresponse().status < 500
        return False

    def _absent(self) -> list[Child]:
        here = set(Worker.objects.live().values_list("pid", flat=True))
        return [child for child in self._workers if child.process.pid not in here]


def _publish(name: str, text: str) -> None:
    """Leave an address in the data folder, where the other commands look for it."""
    path: Path = settings.DATA / name
    temporary = path.with_suffix(".new")
    temporary.write_text(text)
    temporary.replace(path)
