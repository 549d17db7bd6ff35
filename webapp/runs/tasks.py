"""The two Celery tasks, and the shutdown they heed. Each may be delivered twice or never."""

from __future__ import annotations

import os
import socket
import threading
from typing import Any

from celery import shared_task
from celery.signals import worker_shutting_down

from webapp.runs import driver, jobs, queues

SHUTTING_DOWN = threading.Event()


@worker_shutting_down.connect
def _note_shutdown(**_: Any) -> None:
    SHUTTING_DOWN.set()


@shared_task(name=queues.DRIVE)
def drive_run(run_id: int) -> None:
    driver.drive_run(run_id, SHUTTING_DOWN, _name())


@shared_task(name=queues.EVALUATE)
def evaluate_job(job_id: int) -> None:
    jobs.evaluate_job(job_id, SHUTTING_DOWN, _name())


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"
