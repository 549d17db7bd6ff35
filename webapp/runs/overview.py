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

from django.utils import timezone

from runner.events import EventType, RunStatus
from runner.results import Evaluation
from runner.spec import RunSpec
from webapp.fleet.models import Device
from webapp.review.roofline import Measured, Roofline, roofs_for
from webapp.runs.chart import Chart, chart
from webapp.runs.models import Candidate, Job, Run
from webapp.runs.thumbnail import Thumbnail


@dataclass(frozen=True)
class Used:
    """A budget: what is used of it, and its limit."""

    used: float
    limit: float


class Overview:
    """One run as its page needs it."""

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
    def evaluations(self) -> Used:
        return Used(self.run.evaluations, self.spec.budgets.evaluations)

    @cached_property
    def time(self) -> Used:
        """Seconds a driver was at work; a gap before a resumption is nobody's use."""
        return Used(self._seconds_at_work(), self.spec.budgets.wall_clock_s)

    def _seconds_at_work(self) -> float:
        run, budget = self._last_body(EventType.run), self._last_body(EventType.budget)
        if run is None:
            return 0.0
        used = budget["payload"]["wall_clock_s"] if budget else 0.0
        since = datetime.fromisoformat((budget or run)["at"])
        if run["payload"]["status"] == RunStatus.running:
            since = max(since, datetime.fromisoformat(run["at"]))
        return used + max(0.0, (self._until(run) - since) / timedelta(seconds=1))

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
    def stopping(self) -> bool:
        return bool(self.run.stop_requested_by) and not self.run.state.ended
