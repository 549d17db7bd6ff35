"""The agent side of a run: holds its lease, drives it, and hands it back when it must let go.

What happens in a run is runner.drive's business; this module implements its protocols on rows:
DatabaseControl for the requests of people, JobEvaluator for evaluations on a device queue.
Analyses run here, beside the agent: they need no device.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.utils import timezone

from runner import agents
from runner.agents import Agent, external
from runner.drive import drive
from runner.events import (
    ControlAction,
    ControlPayload,
    HarnessErrorPayload,
    RunPayload,
    RunStatus,
)
from runner.examination import LocalExaminer
from runner.loop import EvaluationCancelled, Examiner, Interrupted
from runner.results import Ceiling, Evaluation
from runner.spec import AgentSpec, EvaluationSpec, RunSpec, SpecError, device_kind
from runner.wire import canonical, from_json, to_json
from webapp.api.inbox import RunInbox
from webapp.fleet.models import Device
from webapp.knowledge.library import DatabaseLibrary
from webapp.runs import queues
from webapp.runs.leases import Keeper, Lease
from webapp.runs.log import DatabaseLog, LeaseLost
from webapp.runs.models import Job, Run, RunRequest
from webapp.runs.nudges import nudge_run
from webapp.runs.reminders import remind_jobs

logger = logging.getLogger(__name__)

POLL_S = 0.05
LOOK_AROUND_S = 1.0  # how often a waiting driver asks whether its device is still served
AWAY_S = 10.0  # a device worker that restarts is back well before
MAX_FRUITLESS_STARTS = 5
SHUT_DOWN = "worker shut down; resumes when one is back"
TRACEBACK_CHARACTERS = 8_000
LOCAL = LocalExaminer()


def drive_run(
    pk: int,
    shutdown: threading.Event,
    holder: str,
    *,
    away_s: float = AWAY_S,
    examiner: Examiner | None = LOCAL,
) -> None:
    """Drive a run until it is over or must be let go; nothing happens if it is not to be had.

    A run whose device has no live worker for `away_s` is let go too.
    """
    run = Run.objects.filter(pk=pk).first()
    if run is None or shutdown.is_set() or not _can_go_on(run):
        return  # the row still waits: the reconciler hints again when there is somebody
    token = Run.objects.take(pk, holder)
    if token is None:
        return
    run.refresh_from_db()
    lease = Lease(Run.objects.all(), pk, token)
    with Keeper(lease) as keeper:
        control = DatabaseControl(pk, shutdown, keeper.lost)
        _drive(run, lease, control, JobEvaluator(run, control, away_s), examiner)


def _can_go_on(run: Run) -> bool:
    """False without its device, and in a process that cannot run its agents."""
    if any(agents.lacking(player.agent) for player in run.spec.players):
        Run.objects.drivable().filter(pk=run.pk).update(enqueued_at=None)  # for another worker
        return False
    return Device.objects.live().filter(name=run.device).exists()


def _drive(
    run: Run,
    lease: Lease,
    control: DatabaseControl,
    evaluator: JobEvaluator,
    examiner: Examiner | None,
) -> None:
    log = DatabaseLog(run, lease.token)
    try:
        _refuse_endless_restarts(run)
        drive(
            run.spec,
            log,
            evaluator,
            control,
            create=Cast(run.pk),
            examiner=examiner,
            library=_library(run.spec),
        )
    except LeaseLost as error:
        logger.warning("run %s is driven elsewhere now: %s", run.pk, error)
    except Paused:
        leave_paused(run.pk, lease)
    except Interrupted as error:
        hand_back(run.pk, lease, str(error))
    except Exception as error:
        _close_as_failed(run, log, lease, error)
        raise
    else:
        lease.update(lease_until=None, lease_holder="")


@dataclass(frozen=True)
class Cast:
    """Implements runner.drive.Create: an outside agent acts through the requests it makes here."""

    run_pk: int

    def __call__(self, spec: AgentSpec) -> Agent:
        if spec.agent == external.NAME:
            return external.ExternalAgent(RunInbox(self.run_pk))
        return agents.create(spec)


def _library(spec: RunSpec) -> DatabaseLibrary:
    """The knowledge base, ordered for this run."""
    return DatabaseLibrary(spec.problem, device_kind(spec.device), spec.language)


def hand_back(pk: int, lease: Lease, reason: str) -> None:
    """Put a run back in the queue, saying why; the reconciler hints at it when it can go on."""
    released = lease.update(
        status=RunStatus.queued,
        reason=reason,
        lease_until=None,
        lease_holder="",
        fruitless_starts=0,
        enqueued_at=None,
        hints_sent=0,
    )
    if released:
        nudge_run(pk)


def leave_paused(pk: int, lease: Lease) -> None:
    """Let go of a run that a person paused; it is taken up again when one asks to resume it."""
    if lease.update(lease_until=None, lease_holder="", fruitless_starts=0):
        Run.objects.wake(pk)  # somebody may have asked just before we let go
        nudge_run(pk)


def _refuse_endless_restarts(run: Run) -> None:
    """A run that takes its driver down each time must not do so for ever."""
    if run.fruitless_starts > MAX_FRUITLESS_STARTS:
        raise RuntimeError(
            f"{run.fruitless_starts - 1} drivers in a row died without getting on with the run"
        )


def _close_as_failed(run: Run, log: DatabaseLog, lease: Lease, error: Exception) -> None:
    """The loop closes a run on its own defects; what is left are defects before or around it."""
    run.refresh_from_db(fields=["status", "last_seq"])
    if run.state.ended:
        lease.update(lease_until=None, lease_holder="")
        return
    words = f"{type(error).__name__}: {error}"
    reason = f"a defect of the harness ended the run: {words}"
    trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    try:
        if run.last_seq == 0:
            log.emit(RunPayload(RunStatus.running, "started", run.spec))
        log.emit(HarnessErrorPayload("driving the run", words, trace))
        log.emit(RunPayload(RunStatus.failed, reason))
    except Exception:
        logger.exception("run %s: the failure could not be logged as an event", run.pk)
        lease.update(status=RunStatus.failed, reason=reason)
    lease.update(lease_until=None, lease_holder="")


class Paused(Interrupted):
    """A person paused the run: nobody drives it until one asks to resume it."""


class DatabaseControl:
    """Implements runner.loop.Control: requests from their rows, shutdown and a lost lease."""

    def __init__(self, run_pk: int, shutdown: threading.Event, lost: threading.Event) -> None:
        self.run_pk = run_pk
        self.shutdown = shutdown
        self.lost = lost

    def poll(self, after: int) -> ControlPayload | None:
        self.check()
        later = RunRequest.objects.filter(run=self.run_pk, number__gt=after)
        request = later.order_by("number").first()
        return request.payload if request else None

    def pause(self) -> None:
        raise Paused(f"run {self.run_pk} is paused")

    def check(self) -> None:
        """Raises Interrupted when this process must let the run go."""
        if self.lost.is_set():
            raise LeaseLost(f"run {self.run_pk}: its lease could not be renewed")
        if self.shutdown.is_set():
            raise Interrupted(SHUT_DOWN)

    def stopping(self) -> bool:
        """Whether a person asked for a stop, the one request that cuts an evaluation short."""
        self.check()
        stops = RunRequest.objects.filter(run=self.run_pk, action=ControlAction.stop)
        return stops.exists()


class JobEvaluator:
    """Implements runner.loop.Evaluator: asks a device queue through a Job row, and waits.

    The row is unique for the run, the candidate and the scope, so a driver that resumes adopts
    what is under way or done already, and nothing is measured twice.
    """

    def __init__(self, run: Run, control: DatabaseControl, away_s: float) -> None:
        self.run = run
        self.control = control
        self.away_s = away_s

    def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
        job = self._adopt(number, spec, scope)
        served = looked = time.monotonic()
        while True:
            row = Job.objects.get(pk=job.pk)
            if row.result_text or row.refusal_text:
                return _outcome(row)
            if self.control.stopping() or row.cancelled:
                row.cancel()
                raise EvaluationCancelled(f"the evaluation of c{number} was cancelled")
            now = time.monotonic()
            if now - looked >= LOOK_AROUND_S:
                looked = now
                served = self._served_until(spec.device, served)
                remind_jobs(Job.objects.waiting().filter(pk=job.pk))
            self.control.shutdown.wait(POLL_S)

    def ceilings(self, device: str) -> tuple[Ceiling, ...]:
        """What the device's worker has measured so far; it may still be at it."""
        row = Device.objects.filter(name=device).first()
        return row.ceilings if row else ()

    def _adopt(self, number: int, spec: EvaluationSpec, scope: str) -> Job:
        defaults: dict[str, Any] = {
            "device": spec.device,
            "spec_text": canonical(to_json(spec)),
            "enqueued_at": timezone.now(),
            "hints_sent": 1,
        }
        with transaction.atomic():
            job, created = Job.objects.get_or_create(
                run=self.run, number=number, scope=scope, defaults=defaults
            )
            if created:
                transaction.on_commit(lambda: queues.send_job(job.pk, job.device))
        return job

    def _served_until(self, device: str, served: float) -> float:
        """The last moment the device had a live worker; gives the run back if that is long ago."""
        now = time.monotonic()
        if Device.objects.live().filter(name=device).exists():
            return now
        if now - served > self.away_s:
            raise Interrupted(Device.unserved(device))
        return served


def _outcome(job: Job) -> Evaluation:
    if job.refusal_text:
        raise SpecError(**json.loads(job.refusal_text))
    return from_json(Evaluation, json.loads(job.result_text))
