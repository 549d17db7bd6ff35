"""Run, Event, Artifact, Candidate, Job: what the web stores of a run.

The event table is the truth and its rows are never edited. Candidate rows are a projection of it,
written in the same transaction, so that lists and charts need no JSON parsing. One driver writes a
run at a time: it holds the run's lease, and a write under an older token is refused.
"""

from __future__ import annotations

import json
import uuid
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import models, transaction
from django.urls import reverse
from django.utils import timezone

from runner.events import Event as LogEvent
from runner.events import EventType, RunStatus
from runner.results import Evaluation
from runner.spec import EvaluationSpec, RunSpec
from runner.wire import canonical, from_json, to_json
from webapp.runs import queues

LEASE = timedelta(seconds=settings.LEASE_S)  # renewed every LEASE / 4; a lapsed lease means dead


def new_uuid() -> str:
    return str(uuid.uuid4())


class Artifact(models.Model):
    """A content-addressed blob; the bytes lie in `WARPDECK_DATA/artifacts/<2 hex>/<sha256>`."""

    sha256 = models.CharField(primary_key=True, max_length=64)
    size = models.BigIntegerField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.sha256


def unheld() -> models.Q:
    """Rows that nobody holds: never leased, released, or the lease has lapsed."""
    return models.Q(lease_until=None) | models.Q(lease_until__lt=timezone.now())


class RunQuerySet(models.QuerySet["Run"]):
    def launch(self, spec: RunSpec, user: AbstractBaseUser | None) -> Run:
        """Queue a run. Raises SpecError when the catalog cannot meet the spec."""
        spec.validate()
        with transaction.atomic():
            run = self.create(
                spec_text=canonical(to_json(spec)),
                problem=spec.problem,
                device=spec.device,
                launched_by=user,
            )
            transaction.on_commit(lambda: queues.send_run(run.pk))
        return run

    def for_dashboard(self) -> RunQuerySet:
        return self.select_related("launched_by", "best").order_by("-pk")

    def active(self) -> RunQuerySet:
        return self.filter(status__in=(RunStatus.queued, RunStatus.running))

    def drivable(self) -> RunQuerySet:
        """Runs of ours that are not over and that no driver holds."""
        return self.active().filter(unheld(), imported=False)

    def abandoned(self) -> RunQuerySet:
        """Running by the row, but the driver's lease has lapsed."""
        return self.drivable().filter(status=RunStatus.running)

    def take(self, pk: int, holder: str) -> int | None:
        """Become the one driver of a run: its new lease token, or None when it is not to be had."""
        with transaction.atomic():
            taken = (
                self.drivable()
                .filter(pk=pk)
                .update(
                    status=RunStatus.running,
                    lease_token=models.F("lease_token") + 1,
                    lease_holder=holder,
                    lease_until=timezone.now() + LEASE,
                    hints_sent=0,
                    fruitless_starts=models.F("fruitless_starts") + 1,
                )
            )
            return self.values_list("lease_token", flat=True).get(pk=pk) if taken else None


class Run(models.Model):
    """One agent on one problem. `spec_text` is the canonical JSON of its RunSpec."""

    uuid = models.CharField(max_length=36, unique=True, default=new_uuid)
    spec_text = models.TextField()
    problem = models.CharField(max_length=64, db_index=True)
    device = models.CharField(max_length=64)
    status = models.CharField(max_length=16, default=RunStatus.queued.value, db_index=True)
    reason = models.TextField(blank=True, default="")
    imported = models.BooleanField(default=False)
    launched_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    last_seq = models.PositiveIntegerField(default=0)
    best = models.ForeignKey(
        "Candidate", null=True, on_delete=models.SET_NULL, related_name="+", db_constraint=False
    )
    evaluations = models.PositiveIntegerField(default=0)
    lease_token = models.PositiveIntegerField(default=0)
    lease_holder = models.CharField(max_length=128, blank=True, default="")
    lease_until = models.DateTimeField(null=True)
    stop_requested_by = models.CharField(max_length=150, blank=True, default="")
    enqueued_at = models.DateTimeField(null=True)  # when the last hint was sent to a worker
    hints_sent = models.PositiveIntegerField(default=0)  # since it was last picked up; backs off
    fruitless_starts = models.PositiveIntegerField(default=0)  # since the last evaluation

    objects = RunQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.problem} · run {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("run", args=[self.pk])

    def request_stop(self, by: str) -> bool:
        """Ask the driver to stop; False when the run is over or somebody asked before."""
        waiting = Run.objects.active().filter(pk=self.pk, imported=False, stop_requested_by="")
        return waiting.update(stop_requested_by=by) == 1

    @property
    def spec(self) -> RunSpec:
        return from_json(RunSpec, json.loads(self.spec_text))

    @property
    def state(self) -> RunStatus:
        return RunStatus(self.status)

    @property
    def lost(self) -> bool:
        """True while the row says running but nobody renews the lease."""
        lapsed = self.lease_until is None or self.lease_until < timezone.now()
        return self.state is RunStatus.running and lapsed


class Event(models.Model):
    """A row of the log; `body` is the canonical JSON of the whole runner.events.Event."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="events")
    seq = models.PositiveIntegerField()
    type = models.CharField(max_length=16)
    body = models.TextField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="one_event_per_seq")]
        # The last budget of a long log, and a trace filtered by type, without reading all of it.
        indexes = [models.Index(fields=["run", "type", "seq"], name="events_by_type")]
        ordering = ["seq"]

    def __str__(self) -> str:
        return f"event {self.seq} of run {self.run_id}"

    @property
    def log(self) -> LogEvent:
        return from_json(LogEvent, json.loads(self.body))

    @property
    def kind(self) -> EventType:
        return EventType(self.type)


class Candidate(models.Model):
    """Projection of a candidate event and of its evaluation event, once there is one."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="candidates")
    number = models.PositiveIntegerField()
    parent = models.ForeignKey(
        "self", null=True, on_delete=models.SET_NULL, related_name="children"
    )
    language = models.CharField(max_length=16)
    idea = models.TextField()
    author = models.CharField(max_length=64)
    source_sha256 = models.CharField(max_length=64)
    seq = models.PositiveIntegerField()
    evaluation_seq = models.PositiveIntegerField(null=True)
    verdict = models.CharField(max_length=24, blank=True, default="")
    reason = models.TextField(blank=True, default="")
    speedup = models.FloatField(null=True)
    ci_low = models.FloatField(null=True)
    ci_high = models.FloatField(null=True)
    evaluation_text = models.TextField(blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="one_candidate_per_number")
        ]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"c{self.number}"

    def get_absolute_url(self) -> str:
        return reverse("candidate", args=[self.run_id, self.number])

    @property
    def evaluation(self) -> Evaluation | None:
        if not self.evaluation_text:
            return None
        return from_json(Evaluation, json.loads(self.evaluation_text))


class JobQuerySet(models.QuerySet["Job"]):
    def open(self) -> JobQuerySet:
        """Jobs still without a result."""
        return self.filter(finished_at=None)

    def waiting(self) -> JobQuerySet:
        """Jobs that a device worker may claim now."""
        return self.open().filter(unheld(), cancelled=False)

    def claim(self, pk: int, worker: str) -> int | None:
        """Become the one judge of a job: its new lease token, or None when it is not to be had."""
        with transaction.atomic():
            claimed = (
                self.waiting()
                .filter(pk=pk)
                .update(
                    lease_token=models.F("lease_token") + 1,
                    lease_until=timezone.now() + LEASE,
                    attempts=models.F("attempts") + 1,
                    worker=worker,
                    phase="",
                    hints_sent=0,
                )
            )
            return self.values_list("lease_token", flat=True).get(pk=pk) if claimed else None


class Job(models.Model):
    """One evaluation asked of a device queue. The row is the truth; the Celery message a hint.

    A worker claims it with a lease; if the lease lapses before a result, anyone may claim again.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="jobs")
    number = models.PositiveIntegerField()  # of the candidate
    device = models.CharField(max_length=64, db_index=True)
    spec_text = models.TextField()
    created_at = models.DateTimeField(default=timezone.now)
    lease_token = models.PositiveIntegerField(default=0)
    lease_until = models.DateTimeField(null=True)
    attempts = models.PositiveIntegerField(default=0)
    finished_at = models.DateTimeField(null=True)
    result_text = models.TextField(blank=True, default="")
    refusal_text = models.TextField(
        blank=True, default=""
    )  # of a SpecError: field, problem, remedy
    cancelled = models.BooleanField(default=False)
    worker = models.CharField(max_length=200, blank=True, default="")
    phase = models.CharField(max_length=120, blank=True, default="")  # "checking 4096x2048-fp32"
    enqueued_at = models.DateTimeField(null=True)
    hints_sent = models.PositiveIntegerField(default=0)

    objects = JobQuerySet.as_manager()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="one_job_per_candidate")
        ]

    def __str__(self) -> str:
        return f"evaluation of c{self.number} of run {self.run_id} on {self.device}"

    def cancel(self) -> None:
        """Nobody waits for the result any more; a worker at it gives up within two seconds."""
        mine = Job.objects.open().filter(pk=self.pk)
        mine.update(cancelled=True)
        mine.filter(unheld()).update(finished_at=timezone.now())

    @property
    def spec(self) -> EvaluationSpec:
        return from_json(EvaluationSpec, json.loads(self.spec_text))

    @property
    def result(self) -> Evaluation | None:
        if not self.result_text:
            return None
        return from_json(Evaluation, json.loads(self.result_text))
