"""Hints to workers that a row is waiting for them. A hint that cannot be sent is only logged.

Rows are the truth: the reconciler sends hints again for whatever still waits.
"""

from __future__ import annotations

import logging

from webapp.celery import AGENTS_QUEUE, app, device_queue

logger = logging.getLogger(__name__)

DRIVE = "runs.drive"
EVALUATE = "runs.evaluate"


def send_run(pk: int) -> None:
    _send(DRIVE, pk, AGENTS_QUEUE)


def send_job(pk: int, device: str) -> None:
    _send(EVALUATE, pk, device_queue(device))


def _send(task: str, pk: int, queue: str) -> None:
    try:
        app.send_task(task, args=[pk], queue=queue, retry=False)
    except Exception as error:  # a broker that is away must not fail the one who committed a row
        logger.warning("no hint for %s %s: %s: %s", task, pk, type(error).__name__, error)
