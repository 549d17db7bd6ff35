"""Puts right what a dead process left behind: runs, jobs and reasons. Rows only, no processes.

Every step is a conditional update, so any number of reconcilers may run, at any moment.
"""

from __future__ import annotations

import os
import socket

from django.db.models import Q
from django.utils import timezone

from runner.events import ControlPayload, RunPayload, RunStatus
from webapp.fleet.models import Device, Worker
from webapp.runs.leases import Lease
from webapp.runs.log import DatabaseLog
from webapp.runs.models import Job, Run, RunQuerySet, unheld
from webapp.runs.nudges import nudge_run
from webapp.runs.reminders import remind_jobs, remind_runs

PERIOD_S = 2.0
ABANDONED = "its worker stopped answering; resumes when one is free"
NO_AGENTS = "waiting: no worker drives agents"


def reconcile() -> None:
    """One pass over everything that is not over."""
    requeue_abandoned()
    end_stopped()
    devices = set(Device.objects.live().values_list("name", flat=True))
    explain_waiting(devices)
    if Worker.objects.driving().exists():
        remind_runs(queued().filter(device__in=devices))
    end_cancelled_jobs()
    remind_jobs(Job.objects.waiting().filter(device__in=devices))


def queued() -> RunQuerySet:
    return Run.objects.drivable().filter(status=RunStatus.queued)


def requeue_abandoned() -> None:
    for pk, token in Run.objects.abandoned().values_list("pk", "lease_token"):
        lapsed = Run.objects.abandoned().filter(pk=pk, lease_token=token)
        if lapsed.update(
            status=RunStatus.queued,
            reason=ABANDONED,
            lease_until=None,
            lease_holder="",
            enqueued_at=None,
            hints_sent=0,
        ):
            nudge_run(pk)


def end_stopped() -> None:
    """A stop request for a run that nobody drives needs no worker to be met."""
    for pk in queued().exclude(stop_requested_by="").values_list("pk", flat=True):
        token = Run.objects.take(pk, f"reconciler {socket.gethostname()}:{os.getpid()}")
        if token is None:
            continue
        run = Run.objects.get(pk=pk)
        log = DatabaseLog(run, token)
        if run.last_seq == 0:
            log.emit(RunPayload(RunStatus.queued, "stopped before it started", run.spec))
        log.emit(ControlPayload("stop", run.stop_requested_by))
        log.emit(RunPayload(RunStatus.stopped, f"stopped by {run.stop_requested_by}"))
        Lease(Run.objects.all(), pk, token).update(lease_until=None, lease_holder="")


def explain_waiting(devices: set[str]) -> None:
    """Say on each queued run what it waits for, and take it back when that is there."""
    driven = Worker.objects.driving().exists()
    for pk, device, reason in queued().values_list("pk", "device", "reason"):
        if device not in devices:
            due = Device.unserved(device)
        elif not driven:
            due = NO_AGENTS
        elif reason.startswith("waiting: "):
            due = ""
        else:
            continue
        if due == reason:
            continue
        # hints_sent 0 and enqueued_at null: whoever is back should hear of it at once
        if queued().filter(pk=pk).update(reason=due, enqueued_at=None, hints_sent=0):
            nudge_run(pk)


def end_cancelled_jobs() -> None:
    """Jobs nobody waits for: of runs that are over, or cancelled while no worker held them."""
    over = [status.value for status in RunStatus if status.ended]
    Job.objects.open().filter(run__status__in=over).update(cancelled=True)
    abandoned = Job.objects.open().filter(Q(cancelled=True), unheld())
    abandoned.update(finished_at=timezone.now(), phase="")
