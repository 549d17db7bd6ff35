"""Puts right what a dead process left behind: runs, jobs and reasons. Rows only, no processes.

Every step is a conditional update, so any number of reconcilers may run, at any moment.
"""

from __future__ import annotations

import os
import socket

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from runner.events import ControlAction, RunPayload, RunStatus
from webapp.fleet.models import Device, Offer, Worker
from webapp.runs.leases import Lease
from webapp.runs.log import DatabaseLog
from webapp.runs.models import Job, Run, RunQuerySet, RunRequest, unheld
from webapp.runs.nudges import nudge_run
from webapp.runs.reminders import remind_jobs, remind_runs

PERIOD_S = 2.0
ABANDONED = "its worker stopped answering; resumes when one is free"
NO_AGENTS = "waiting: no worker drives agents"


def reconcile() -> None:
    """One pass over everything that is not over."""
    requeue_abandoned()
    resume_paused()
    end_stopped()
    devices = set(Device.objects.live().values_list("name", flat=True))
    ready = explain_waiting(devices, Worker.objects.offer())
    remind_runs(queued().filter(pk__in=ready))
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


def resume_paused() -> None:
    """Take up paused runs that somebody asked to resume while their driver was letting go."""
    asked = Run.objects.asked(ControlAction.resume).filter(status=RunStatus.paused)
    for pk in asked.values_list("pk", flat=True):
        if Run.objects.wake(pk):
            nudge_run(pk)


def end_stopped() -> None:
    """A stop request for a run that nobody drives needs no worker to be met."""
    waits = Run.objects.free().filter(status__in=(RunStatus.queued, RunStatus.paused))
    asked = RunRequest.objects.filter(run=OuterRef("pk"), action=ControlAction.stop)
    for pk in waits.filter(Exists(asked)).values_list("pk", flat=True):
        with transaction.atomic():
            token = Run.objects.take(
                pk, f"reconciler {socket.gethostname()}:{os.getpid()}", paused=True
            )
            if token is not None:
                _end_stopped(Run.objects.get(pk=pk), token)


def _end_stopped(run: Run, token: int) -> None:
    log = DatabaseLog(run, token)
    if run.last_seq == 0:
        log.emit(RunPayload(RunStatus.queued, "stopped before it started", run.spec))
    for request in run.requests.filter(number__gt=run.requests_taken):
        log.emit(request.payload)
    log.emit(RunPayload(RunStatus.stopped, f"stopped by {run.stop_requested_by}"))
    Lease(Run.objects.all(), run.pk, token).update(lease_until=None, lease_holder="")


def explain_waiting(devices: set[str], offer: Offer) -> list[int]:
    """Say on each queued run what it waits for, and take it back when that is there.

    Returns the runs that wait for nothing but to be picked up.
    """
    ready = []
    for run in queued().only("pk", "device", "reason", "spec_text"):
        due = _lacks(run, devices, offer)
        if not due:
            ready.append(run.pk)
        if due == run.reason or not (due or run.reason.startswith("waiting: ")):
            continue
        # hints_sent 0 and enqueued_at null: whoever is back should hear of it at once
        if queued().filter(pk=run.pk).update(reason=due, enqueued_at=None, hints_sent=0):
            nudge_run(run.pk)
    return ready


def _lacks(run: Run, devices: set[str], offer: Offer) -> str:
    if run.device not in devices:
        return Device.unserved(run.device)
    if not offer.here:
        return NO_AGENTS
    return offer.reason(player.agent for player in run.spec.players)


def end_cancelled_jobs() -> None:
    """Jobs nobody waits for: of runs that are over, or cancelled while no worker held them."""
    over = [status.value for status in RunStatus if status.ended]
    Job.objects.open().filter(run__status__in=over).update(cancelled=True)
    abandoned = Job.objects.open().filter(Q(cancelled=True), unheld())
    abandoned.update(finished_at=timezone.now(), phase="")
