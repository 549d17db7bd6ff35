"""Run, RunRequest, Event, Artifact, Candidate, Job: what the web stores of a run.

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

from runner.events import ControlAction, ControlPayload, EventType, RunStatus
from runner.events import Event as LogEvent
from runner.results import Evaluation
from runner.spec import Budgets, EvaluationSpec, RunSpec
from runner.wire import canonical, from_json, to_json
from webapp.runs import queues, requests
from webapp.runs.nudges import nudge_run

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
        found = self.select_related("launched_by", "best").prefetch_related("requests")
        return found.order_by("-pk")

    def active(self) -> RunQuerySet:
        """Runs that are not over, the paused ones too."""
        return self.filter(status__in=[each for each in RunStatus if not each.ended])

    def free(self) -> RunQuerySet:
        """Runs of ours that are not over and that nobody holds."""
        return self.active().filter(unheld(), imported=False)

    def drivable(self) -> RunQuerySet:
        """Free runs that a driver may take: all but the paused ones."""
        return self.free().exclude(status=RunStatus.paused)

    def abandoned(self) -> RunQuerySet:
        """Running by the row, but the driver's lease has lapsed."""
        return self.drivable().filter(status=RunStatus.running)

    def asked(self, action: ControlAction) -> RunQuerySet:
        """Free runs with such a request that no driver has taken up yet."""
        waiting = RunRequest.objects.filter(
            run=models.OuterRef("pk"), action=action, number__gt=models.OuterRef("requests_taken")
        )
        return self.free().filter(models.Exists(waiting))

    def wake(self, pk: int) -> bool:
        """Put a paused run that somebody asked to resume back in the queue, and say so at once."""
        resumed = self.asked(ControlAction.resume).filter(pk=pk, status=RunStatus.paused)
        changes = {"status": RunStatus.queued, "reason": "", "enqueued_at": timezone.now()}
        if not resumed.update(**changes, hints_sent=1):
            return False
        transaction.on_commit(lambda: queues.send_run(pk))
        return True

    def take(self, pk: int, holder: str, *, paused: bool = False) -> int | None:
        """Become the one writer of a run: its new lease token, or None when it is not to be had.

        A paused run is taken only by who says so, to end it.
        """
        rows = self.free() if paused else self.drivable()
        with transaction.atomic():
            taken = rows.filter(pk=pk).update(
                status=RunStatus.running,
                lease_token=models.F("lease_token") + 1,
                lease_holder=holder,
                lease_until=timezone.now() + LEASE,
                hints_sent=0,
                fruitless_starts=models.F("fruitless_starts") + 1,
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
    requests_taken = models.PositiveIntegerField(default=0)  # the highest number that took effect
    enqueued_at = models.DateTimeField(null=True)  # when the last hint was sent to a worker
    hints_sent = models.PositiveIntegerField(default=0)  # since it was last picked up; backs off
    fruitless_starts = models.PositiveIntegerField(default=0)  # since it last got on

    objects = RunQuerySet.as_manager()

    def __str__(self) -> str:
        return f"{self.problem} · run {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("run", args=[self.pk])

    def ask(
        self, action: ControlAction, by: str, text: str = "", budgets: Budgets | None = None
    ) -> RunRequest:
        """Ask whoever drives the run for something. Raises SpecError when it cannot be had.

        It takes effect at the run's next step; a paused run is taken up again to resume it.
        """
        with transaction.atomic():
            run = Run.objects.select_for_update().get(pk=self.pk)
            earlier = list(run.requests.all())
            number = earlier[-1].number + 1 if earlier else 1
            wanted = ControlPayload(action, by, text.strip(), budgets, number)
            requests.check(run, wanted, earlier)
            request = RunRequest.objects.create(
                run=run,
                number=number,
                action=wanted.action.value,
                by=by,
                text=wanted.text,
                budgets_text="" if budgets is None else canonical(to_json(budgets)),
            )
            Run.objects.wake(run.pk)
            transaction.on_commit(lambda: nudge_run(run.pk))
        return request

    @property
    def pending_requests(self) -> list[RunRequest]:
        """What was asked and has not taken effect yet, in order; nothing once the run is over."""
        if self.state.ended or self.imported:
            return []
        return [each for each in self.requests.all() if each.number > self.requests_taken]

    @property
    def stop_requested_by(self) -> str:
        """Who asked the run to stop, or nothing."""
        stops = [each.by for each in self.requests.all() if each.action == ControlAction.stop]
        return stops[0] if stops else ""

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


class RunRequest(models.Model):
    """A person's request of a run; `number` counts from 1 within the run, with no gaps.

    `budgets_text` is the canonical JSON of an extension's Budgets. Rows are never edited: which of
    them took effect is in the log, and in `Run.requests_taken`.
    """

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="requests")
    number = models.PositiveIntegerField()
    action = models.CharField(max_length=16)
    by = models.CharField(max_length=150)
    text = models.TextField(blank=True, default="")
    budgets_text = models.TextField(blank=True, default="")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="one_request_per_number")
        ]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"{self.action} asked of run {self.run_id} by {self.by}"

    @property
    def payload(self) -> ControlPayload:
        """As the log has it once it took effect."""
        budgets = from_json(Budgets, json.loads(self.budgets_text)) if self.budgets_text else None
        action = ControlAction(self.action)
        return ControlPayload(action, self.by, self.text, budgets, self.number)


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
    scope = models.CharField(max_length=200, blank=True, default="")  # empty: a whole evaluation
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
            models.UniqueConstraint(fields=["run", "number", "scope"], name="one_job_per_scope")
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
