"""The two Celery tasks, and the shutdown they heed. Each may be delivered twice or never."""

from __future__ import annotations

import threading
from typing import Any

from celery import Task, shared_task
from celery.signals import worker_shutting_down

from webapp.runs import driver, jobs, queues

SHUTTING_DOWN = threading.Event()


@worker_shutting_down.connect
def _note_shutdown(**_: Any) -> None:
    SHUTTING_DOWN.set()


@shared_task(name=queues.DRIVE, bind=True)
def drive_run(self: Task, run_id: int) -> None:
    driver.drive_run(run_id, SHUTTING_DOWN, self.request.hostname)


@shared_task(name=queues.EVALUATE, bind=True)
def evaluate_job(self: Task, job_id: int) -> None:
    jobs.evaluate_job(job_id, SHUTTING_DOWN, self.request.hostname)
