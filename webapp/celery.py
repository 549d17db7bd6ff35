"""The Celery app: two kinds of queues, `agents` and `device.<name>`.

Messages are hints. Whether there is work to do is always decided by a row, so a lost, doubled or
late message is harmless and no acknowledgement matters.
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery
from celery.signals import after_setup_logger, after_setup_task_logger

from webapp.logs import leave_out_keys

AGENTS_QUEUE = "agents"
DEVICE_QUEUE_PREFIX = "device."

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
app = Celery("warpdeck")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@after_setup_logger.connect
@after_setup_task_logger.connect
def _leave_out_keys(logger: Any, **_: Any) -> None:
    leave_out_keys(logger)


def device_queue(device: str) -> str:
    return f"{DEVICE_QUEUE_PREFIX}{device}"
