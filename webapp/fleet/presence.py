"""A worker's presence: its row and its devices' rows, kept fresh by a heartbeat thread.

Runs inside a Celery worker. What a worker serves follows from the queues it consumes, which agents
it can drive from what is installed and which keys it has. Measuring a
device takes a while, so it happens beside the heartbeat: a device is there before its numbers.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterable
from typing import Any

from celery.signals import worker_ready, worker_shutdown
from django.db import DatabaseError, connection
from django.utils import timezone

from runner import agents, keys, sandbox
from runner.evaluate.ceilings import ceilings
from runner.evaluate.devices import device_info
from runner.spec import device_kind
from runner.wire import canonical, to_json
from webapp.celery import DEVICE_QUEUE_PREFIX
from webapp.fleet.models import LIVE_FOR, Device, Worker

logger = logging.getLogger(__name__)

HEARTBEAT_S = 3.0


class Presence:
    """Registers at once, then says every few seconds that this process lives."""

    def __init__(self, name: str, queues: Iterable[str]) -> None:
        self.name = name
        self.devices = sorted(
            queue.removeprefix(DEVICE_QUEUE_PREFIX)
            for queue in queues
            if queue.startswith(DEVICE_QUEUE_PREFIX)
        )
        self._done = threading.Event()

    def start(self) -> None:
        self.register()
        threading.Thread(target=self._beat, name="presence", daemon=True).start()
        if self.devices:
            threading.Thread(target=self._measure, name="measure", daemon=True).start()

    def register(self) -> None:
        now = timezone.now()
        lacking = {} if self.devices else {name: agents.lacking(name) for name in agents.names()}
        Worker.objects.update_or_create(
            name=self.name,
            defaults={
                "kind": Worker.Kind.DEVICE if self.devices else Worker.Kind.AGENTS,
                "agents": [name for name, why in lacking.items() if not why],
                "lacking": {name: why for name, why in lacking.items() if why},
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "registered_at": now,
                "last_seen": now,
            },
        )
        for device in self.devices:
            Device.objects.update_or_create(
                name=device,
                defaults={
                    "kind": device_kind(device),
                    "worker": self.name,
                    "state": Device.State.IDLE,
                    "registered_at": now,
                    "last_seen": now,
                },
            )

    def leave(self) -> None:
        """Sign off, so that nobody waits for the heartbeat to run out."""
        self._done.set()
        gone = timezone.now() - LIVE_FOR
        Worker.objects.filter(name=self.name, pid=os.getpid()).update(last_seen=gone)
        Device.objects.filter(worker=self.name, name__in=self.devices).update(last_seen=gone)

    def beat(self) -> None:
        now = timezone.now()
        Worker.objects.filter(name=self.name).update(last_seen=now)
        Device.objects.filter(worker=self.name, name__in=self.devices).update(last_seen=now)

    def _beat(self) -> None:
        while not self._done.wait(HEARTBEAT_S):
            try:
                self.beat()
            except DatabaseError as error:
                logger.warning("heartbeat not written: %s", error)
        connection.close()

    def _measure(self) -> None:
        for device in self.devices:
            try:
                measure(device)
            except Exception as error:
                logger.exception("measuring %s", device)
                words = f"not measured: {type(error).__name__}: {error}"
                Device.objects.filter(name=device).update(problem=words)
        connection.close()


def measure(device: str) -> None:
    """Fill in what the device is and what it can do; measured once per machine, then cached."""
    row = Device.objects.filter(name=device)
    row.update(info_text=canonical(to_json(device_info(device))), problem="")
    row.filter(state=Device.State.IDLE).update(state=Device.State.MEASURING)
    try:
        measured = [to_json(ceiling) for ceiling in ceilings(device)]
        row.update(ceilings_text=canonical(measured))
    finally:
        row.filter(state=Device.State.MEASURING).update(state=Device.State.IDLE)


_presences: list[Presence] = []


@worker_ready.connect
def _arrive(sender: Any, **_: Any) -> None:
    if keys.present():
        sandbox.seal(True)  # nobody reads them from our memory or our /proc
    presence = Presence(sender.hostname, list(sender.app.amqp.queues.consume_from))
    _presences.append(presence)
    presence.start()


@worker_shutdown.connect
def _leave(**_: Any) -> None:
    for presence in _presences:
        presence.leave()
