"""The Celery app: two kinds of queues, `agents` and `device.<name>`.

Messages are hints. Whether there is work to do is always decided by a row, so a lost, doubled or
late message is harmless and no acknowledgement matters.
"""

from __future__ import annotations

import os

from celery import Celery

AGENTS_QUEUE = "agents"
DEVICE_QUEUE_PREFIX = "device."

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
app = Celery("warpdeck")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


def device_queue(device: str) -> str:
    return f"{DEVICE_QUEUE_PREFIX}{device}"
