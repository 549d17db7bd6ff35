"""Sends hints again for rows that still wait, less and less often.

A broker may have lost its messages, a worker may have died with one in its hands; the row still
says that it waits. Doubled hints are harmless, but a queue should not fill with them: hence the
back-off.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.utils import timezone

from webapp.runs import queues
from webapp.runs.models import JobQuerySet, Run, RunQuerySet

FIRST_WAIT_S = 3.0
LONGEST_WAIT_S = 60.0


def remind_runs(rows: RunQuerySet) -> int:
    """Hint at each of the runs that is due; returns how many hints were sent."""
    sent = 0
    for pk, enqueued_at, hints in rows.values_list("pk", "enqueued_at", "hints_sent"):
        mine = Run.objects.drivable().filter(pk=pk, hints_sent=hints)
        if _due(enqueued_at, hints) and mine.update(
            hints_sent=hints + 1, enqueued_at=timezone.now()
        ):
            queues.send_run(pk)
            sent += 1
    return sent


def remind_jobs(rows: JobQuerySet) -> int:
    """The same for jobs."""
    sent = 0
    waiting = rows.values_list("pk", "device", "enqueued_at", "hints_sent")
    for pk, device, enqueued_at, hints in waiting:
        mine = rows.filter(pk=pk, hints_sent=hints)
        if _due(enqueued_at, hints) and mine.update(
            hints_sent=hints + 1, enqueued_at=timezone.now()
        ):
            queues.send_job(pk, device)
            sent += 1
    return sent


def _due(enqueued_at: datetime | None, hints: int) -> bool:
    wait = min(FIRST_WAIT_S * 2 ** min(hints, 10), LONGEST_WAIT_S)
    return enqueued_at is None or enqueued_at < timezone.now() - timedelta(seconds=wait)
