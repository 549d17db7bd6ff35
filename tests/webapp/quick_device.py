"""A device worker whose measurements are made up, as a process of its own that a test can kill.

    python -m tests.webapp.quick_device NAME

What it finds follows from the source alone, so a run judged by it has one course.
"""

from __future__ import annotations

import hashlib
import sys
import threading
import time
from typing import Any

import django

PAUSE_S = 0.02
JUDGING_S = 0.25  # long enough to be killed in the middle


def judge(spec: Any, *, cancel: threading.Event | None, progress: Any) -> Any:
    from runner.evaluate import Cancelled
    from tests.runner.fakes import by_constants, make_evaluation

    progress("judging")
    if cancel is not None and cancel.wait(JUDGING_S):
        raise Cancelled
    if "constexpr int " in spec.source:
        return by_constants(spec.source)
    digest = hashlib.sha256(spec.source.encode()).digest()
    return make_evaluation(1 + digest[0] / 255, source=spec.source)


def main(name: str) -> None:
    django.setup()
    from webapp.fleet.presence import Presence
    from webapp.runs import jobs
    from webapp.runs.models import Job

    presence, beaten = Presence(name, ["device.host"]), time.monotonic()
    presence.register()
    while True:
        for pk in Job.objects.waiting().values_list("pk", flat=True):
            jobs.evaluate_job(pk, threading.Event(), name, evaluate=judge)
        if time.monotonic() - beaten > 1:
            presence.beat()
            beaten = time.monotonic()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main(sys.argv[1])
