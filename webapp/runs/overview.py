"""What the run page shows around its trace: state, budgets, outline, best so far.

Reads rows, computes, and holds the result for one rendering; it writes nothing. The number of
queries does not depend on how many candidates or events there are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from django.db.models import OuterRef, QuerySet, Subquery
from django.utils import timezone

from runner import requests, workflows
from runner.events import BudgetPayload, ControlAction, EventType, RunStatus
from runner.results import Evaluation
from runner.spec import Budgets, RunSpec
from runner.wire import from_json
from webapp.fleet.models import Device
from webapp.review.roofline import Measured, Roofline, roofs_for
from webapp.runs.chart import Chart, chart
from webapp.runs.ledger import Ledger, Stage, ledger
from webapp.runs.models import Candidate, Event, Job, Run
from webapp.runs.thumbnail import Thumbnail

TURNS = (ControlAction.pause, ControlAction.resume)


@dataclass(frozen=True)
class Used:
    """A budget: what is used of it, None where that is not known; a limit of None is none."""

    used: float | None
    limit: float | None


@dataclass(frozen=True)
class Part:
    """The candidates of one stage, or of a run without stages."""

    stage: Stage | None
    candidates: list[Candidate]


def with_budgets(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Each run with the body of its last budget event, so that a list asks once for all."""
    budgets = Event.objects.filter(run=OuterRef("pk"), type=EventType.budget.value)
    return runs.annotate(budget_body=Subquery(budgets.order_by("-seq").values("body")[:1]))


class Overview:
    """One run as its page needs it, or as a line of the list from `with_budgets`."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.spec: RunSpec = run.spec

    @cached_property
    def candidates(self) -> list[Candidate]:
        return list(self.run.candidates.defer("evaluation_text", "reason"))

    @property
    def best(self) -> Candidate | None:
        """With its evaluation, which the outline's rows leave out."""
        return self.run.best

    @cached_property
    def evaluation(self) -> Evaluation | None:
        return self.best.evaluation if self.best else None

    @cached_property
    def device(self) -> Device | None:
        return None if self.run.imported else Device.objects.filter(name=self.run.device).first()

    @property
    def device_model(self) -> str:
        """From the measurement where there is one: an import's device is not ours."""
        if self.evaluation:
            return self.evaluation.device.model
        return self.device.info.model if self.device and self.device.info else ""

    @cached_property
    def job(self) -> Job | None:
        """The evaluation under way or waiting for its device."""
        if self.run.state.ended:
            return None
        return self.run.jobs.filter(finished_at=None).defer("spec_text", "result_text").first()

    @property
    def first(self) -> Candidate | None:
        return self.candidates[0] if self.candidates else None

    @cached_property
    def chart(self) -> Chart:
        return chart(self.candidates, self.spec.goal_speedup)

    @cached_property
    def roofline(self) -> Thumbnail | None:
        """Of the best candidate and the first; None until one was timed."""
        if self.evaluation is None or self.best is None:
            return None
        shown = [Measured(self.best.number, None, self.evaluation)]
        first = self.run.candidates.filter(number=1).exclude(pk=self.best.pk).first()
        if first is not None and first.evaluation is not None:
            shown.append(Measured(1, None, first.evaluation))
        return Thumbnail(Roofline(roofs_for(self.run, self.evaluation.device), shown))

    @cached_property
    def budget(self) -> BudgetPayload | None:
        """What was used by the last report; None before the first."""
        body = self._budget_body
        return from_json(BudgetPayload, body["payload"]) if body else None

    @property
    def limits(self) -> Budgets:
        """As they were extended, if they were."""
        return self.budget.limits if self.budget else self.spec.budgets

    @cached_property
    def evaluations(self) -> Used:
        return Used(self.run.evaluations, self.limits.evaluations)

    @cached_property
    def time(self) -> Used:
        """Seconds a driver was at work; a gap before a resumption is nobody's use."""
        return Used(self._seconds_at_work(), self.limits.wall_clock_s)

    @property
    def asks_models(self) -> bool:
        """True for a run that costs, or may cost, more than time."""
        limited = self.limits.tokens is not None or self.limits.dollars is not None
        return limited or bool(self.budget and self.budget.tokens)

    @property
    def tokens(self) -> Used:
        return Used(self.budget.tokens if self.budget else 0, self.limits.tokens)

    @property
    def dollars(self) -> Used:
        return Used(self.budget.dollars if self.budget else 0.0, self.limits.dollars)

    @cached_property
    def ledger(self) -> Ledger:
        return ledger(self.run)

    @cached_property
    def outline(self) -> list[Part]:
        """The candidates under the stages that made them; without stages, all in one part."""
        marks: list[Stage | None] = [None, *self.ledger.stages]
        parts = [Part(stage, []) for stage in marks]
        for candidate in self.candidates:
            made_in = [p for p in parts if p.stage is None or p.stage.seq < candidate.seq]
            made_in[-1].candidates.append(candidate)
        return [part for part in parts if part.stage is not None or part.candidates]

    @property
    def workflow(self) -> str:
        """Its title's first word or words: `Goal`; its name where it is not ours."""
        if self.spec.workflow not in workflows.names():
            return self.spec.workflow
        return workflows.get(self.spec.workflow).TITLE.partition(":")[0]

    def _seconds_at_work(self) -> float:
        run, budget = self._last_body(EventType.run), self._budget_body
        if run is None:
            return 0.0
        used = budget["payload"]["wall_clock_s"] if budget else 0.0
        since = datetime.fromisoformat((budget or run)["at"])
        if run["payload"]["status"] == RunStatus.running:
            since = max(since, datetime.fromisoformat(run["at"]))
        elif run["payload"]["status"] == RunStatus.paused:  # waiting for a person is nobody's use
            return used + max(0.0, (datetime.fromisoformat(run["at"]) - since).total_seconds())
        return used + max(0.0, (self._until(run) - since) / timedelta(seconds=1))

    @cached_property
    def _budget_body(self) -> dict[str, Any] | None:
        if hasattr(self.run, "budget_body"):
            return json.loads(self.run.budget_body) if self.run.budget_body else None
        return self._last_body(EventType.budget)

    def _last_body(self, kind: EventType) -> dict[str, Any] | None:
        row = self.run.events.filter(type=kind.value).order_by("-seq").first()
        return json.loads(row.body) if row else None

    def _until(self, run_event: dict[str, Any]) -> datetime:
        """Now while somebody drives; else the moment the driver was last heard of."""
        if self.run.state.ended:
            return datetime.fromisoformat(run_event["at"])
        if self.run.state is RunStatus.running and not self.run.lost:
            return timezone.now()
        last = self.run.events.order_by("-seq").first()
        return datetime.fromisoformat(json.loads(last.body)["at"]) if last else timezone.now()

    @property
    def controllable(self) -> bool:
        """True while a person may still ask something of it."""
        return not (self.run.state.ended or self.run.imported)

    @property
    def listens(self) -> bool:
        """True if some agent of it reads what people say."""
        return requests.listens(self.spec)

    @property
    def asked_to_pause(self) -> bool:
        """True if it is paused, or will be once everything asked so far took effect."""
        turns = [each.action for each in self.run.pending_requests if each.action in TURNS]
        if turns:
            return turns[-1] == ControlAction.pause
        return self.run.state is RunStatus.paused

    @property
    def stopping(self) -> bool:
        return bool(self.run.stop_requested_by) and not self.run.state.ended
