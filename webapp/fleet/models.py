"""Workers and devices as the web knows them: what registered, and when it was last seen.

A row says nothing about the present by itself; `live()` and `is_live` compare its heartbeat with
the clock, so a killed worker drops out with no one having to notice.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta

from django.db import models
from django.utils import timezone

from runner.results import Ceiling, DeviceInfo
from runner.wire import from_json

LIVE_FOR = timedelta(seconds=10)  # three heartbeats and a little


class WorkerQuerySet(models.QuerySet["Worker"]):
    def live(self) -> WorkerQuerySet:
        return self.filter(last_seen__gte=timezone.now() - LIVE_FOR)

    def driving(self) -> WorkerQuerySet:
        """Live workers that drive agents."""
        return self.live().filter(kind=Worker.Kind.AGENTS)

    def offer(self) -> Offer:
        """What the live workers can drive, in one query."""
        rows = list(self.driving().values_list("agents", "lacking"))
        agents = frozenset(name for names, _ in rows for name in names)
        lacking = {name: why for _, reasons in rows for name, why in reasons.items()}
        return Offer(agents, lacking, here=bool(rows))


@dataclass(frozen=True)
class Offer:
    """The agents that some live worker can drive, and why one cannot drive the others.

    `here` says that there is a live worker at all.
    """

    agents: frozenset[str] = frozenset()
    lacking: dict[str, str] = field(default_factory=dict)
    here: bool = False

    def reason(self, names: Iterable[str]) -> str:
        """What a run with these agents waits for; empty when they can all be driven."""
        for name in names:
            if name not in self.agents:
                why = f" ({self.lacking[name]})" if name in self.lacking else ""
                return f"waiting: no worker can run the {name} agent{why}"
        return ""


class Worker(models.Model):
    """A worker process. `name` is its Celery node name.

    `agents` names the agents that it can drive, `lacking` says why it cannot drive others.
    """

    class Kind(models.TextChoices):
        AGENTS = "agents"
        DEVICE = "device"

    name = models.CharField(max_length=200, unique=True)
    kind = models.CharField(max_length=16, choices=Kind.choices)
    host = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    agents = models.JSONField(default=list)
    lacking = models.JSONField(default=dict)
    registered_at = models.DateTimeField(default=timezone.now)
    last_seen = models.DateTimeField(default=timezone.now)

    objects = WorkerQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_live(self) -> bool:
        return self.last_seen >= timezone.now() - LIVE_FOR


class DeviceQuerySet(models.QuerySet["Device"]):
    def live(self) -> DeviceQuerySet:
        return self.filter(last_seen__gte=timezone.now() - LIVE_FOR)


class Device(models.Model):
    """A device that some worker served at least once.

    `info_text` and `ceilings_text` are canonical JSON of a DeviceInfo and a list of Ceiling; empty
    until measured. `problem` says why a number is missing.
    """

    class State(models.TextChoices):
        IDLE = "idle"
        MEASURING = "measuring"
        EVALUATING = "evaluating"

    name = models.CharField(max_length=64, unique=True)
    kind = models.CharField(max_length=16)
    info_text = models.TextField(blank=True, default="")
    ceilings_text = models.TextField(blank=True, default="")
    problem = models.TextField(blank=True, default="")
    state = models.CharField(max_length=16, choices=State.choices, default=State.IDLE)
    worker = models.CharField(max_length=200, blank=True, default="")
    registered_at = models.DateTimeField(default=timezone.now)
    last_seen = models.DateTimeField(default=timezone.now)

    objects = DeviceQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name

    @property
    def is_live(self) -> bool:
        return self.last_seen >= timezone.now() - LIVE_FOR

    @staticmethod
    def unserved(name: str) -> str:
        """The reason shown on a run that waits for this device."""
        return f"waiting: no worker serves device {name}"

    @property
    def info(self) -> DeviceInfo | None:
        return from_json(DeviceInfo, json.loads(self.info_text)) if self.info_text else None

    @property
    def ceilings(self) -> tuple[Ceiling, ...]:
        """Empty until measured."""
        raw = json.loads(self.ceilings_text) if self.ceilings_text else []
        return tuple(from_json(Ceiling, item) for item in raw)
