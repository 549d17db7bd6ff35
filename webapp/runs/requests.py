"""What people ask of a run of ours: the rules of runner.requests, on rows.

Requests are kept as rows (models.RunRequest) and take effect where the run is driven.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner import requests
from runner.events import ControlAction, ControlPayload
from runner.spec import Budgets, SpecError
from runner.state import RunState

if TYPE_CHECKING:
    from webapp.runs.models import Run, RunRequest

ELSEWHERE = "Launch a run of your own with the same settings."


def check(run: Run, wanted: ControlPayload, earlier: list[RunRequest]) -> None:
    """Raises SpecError unless `wanted` may follow the requests made so far."""
    if run.imported:
        raise SpecError("run", "it was imported, so nobody drives it here.", ELSEWHERE)
    if run.state.ended:
        raise SpecError("run", f"it is over ({run.status}).", ELSEWHERE)
    asked = [request.payload for request in earlier]
    requests.check(run.spec, wanted, asked)
    if wanted.action is ControlAction.extend:
        requests.check_extension(run.spec, _state(run), wanted.budgets, asked)


def limits(run: Run) -> Budgets:
    """The budgets that hold once all that was asked has taken effect."""
    asked = [request.payload for request in run.requests.all()]
    return requests.limits(run.spec, _state(run), asked)


def _state(run: Run) -> RunState:
    return RunState.from_events(row.log for row in run.events.all())
