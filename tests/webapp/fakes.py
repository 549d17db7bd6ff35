"""A device worker without Celery: claims whatever waits and judges it with a function of ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from django.db import connection
from django.utils import timezone

import runner.agents
from runner.evaluate import Cancelled
from runner.results import Evaluation
from runner.spec import EvaluationSpec
from tests.factories import make_evaluation
from webapp.fleet.models import Device, Worker
from webapp.runs import jobs
from webapp.runs.models import Job

Judge = Callable[[EvaluationSpec, threading.Event], Evaluation]


def passes(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
    return make_evaluation("passed", 1.5, source=spec.source)


def hangs_until_cancelled(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
    assert cancel.wait(20), "nobody cancelled"
    raise Cancelled


def register(
    device: str = "host", *, agents: bool = True, lacking: dict[str, str] | None = None
) -> None:
    """Rows as live workers leave them; `lacking` are the agents that they cannot drive, and why."""
    now = timezone.now()
    Device.objects.update_or_create(name=device, defaults={"kind": "host", "last_seen": now})
    if agents:
        lacking = lacking or {}
        defaults = {
            "kind": Worker.Kind.AGENTS,
            "host": "here",
            "pid": 1,
            "last_seen": now,
            "agents": [name for name in runner.agents.names() if name not in lacking],
            "lacking": lacking,
        }
        Worker.objects.update_or_create(name="agents@here", defaults=defaults)


class DeviceThread:
    """Use as a context manager; `judged` holds the sources in the order they were judged."""

    def __init__(self, judge: Judge = passes) -> None:
        self.judge = judge
        self.judged: list[str] = []
        self.shutdown = threading.Event()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        register()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown.set()
        self._done.set()
        self._thread.join()

    def evaluate(self, spec: EvaluationSpec, *, cancel: Any, progress: Any) -> Evaluation:
        progress("judging")
        self.judged.append(spec.source)
        return self.judge(spec, cancel)

    def _run(self) -> None:
        while not self._done.is_set():
            for pk in Job.objects.waiting().values_list("pk", flat=True):
                jobs.evaluate_job(pk, self.shutdown, "device@here", evaluate=self.evaluate)
            time.sleep(0.01)
        connection.close()
