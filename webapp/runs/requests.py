"""What people ask of a run under way: which requests are taken, and why the others are not.

Owns the rules alone. Requests are kept as rows (models.RunRequest) and take effect where the run is
driven; what they change there is runner.loop's business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from runner.events import ControlAction, ControlPayload
from runner.spec import Budgets, RunSpec, SpecError
from runner.state import RunState

if TYPE_CHECKING:
    from webapp.runs.models import Run, RunRequest

TEXT_CHARACTERS = 4_000
DEAF = {"search", "scripted", "replay"}  # agents that propose, and read nothing
ELSEWHERE = "Launch a run of your own with the same settings."


def check(run: Run, wanted: ControlPayload, earlier: list[RunRequest]) -> None:
    """Raises SpecError unless `wanted` may follow the requests made so far."""
    if run.imported:
        raise SpecError("run", "it was imported, so nobody drives it here.", ELSEWHERE)
    if run.state.ended:
        raise SpecError("run", f"it is over ({run.status}).", ELSEWHERE)
    for request in earlier:
        if request.action == ControlAction.stop:
            remedy = "It ends after the step under way."
            raise SpecError("action", f"{request.by} asked it to stop before.", remedy)
    match wanted.action:
        case ControlAction.pause | ControlAction.resume:
            _check_turn(wanted.action, earlier)
        case ControlAction.steer:
            _check_listens(run.spec)
            _check_text(wanted.text)
        case ControlAction.extend:
            _check_budgets(wanted.budgets, run)


def limits(run: Run) -> Budgets:
    """The budgets that hold now: those of the spec, or as they were extended."""
    state = _state(run)
    return state.limits if state.spec else run.spec.budgets


def _state(run: Run) -> RunState:
    return RunState.from_events(row.log for row in run.events.all())


def _check_turn(action: ControlAction, earlier: list[RunRequest]) -> None:
    turns = [each for each in earlier if each.action in (ControlAction.pause, ControlAction.resume)]
    paused = bool(turns) and turns[-1].action == ControlAction.pause
    if paused and action is ControlAction.pause:
        raise SpecError("action", f"{turns[-1].by} asked it to pause before.", "Resume or stop it.")
    if not paused and action is ControlAction.resume:
        raise SpecError("action", "it is not paused.", "Pause it first.")


def listens(spec: RunSpec) -> bool:
    """True where some agent of the run reads what people tell it."""
    return any(player.agent not in DEAF for player in spec.players)


def _check_listens(spec: RunSpec) -> None:
    if not listens(spec):
        problem = f"the {spec.agent} agent goes by measurements alone and reads no notes."
        raise SpecError("action", problem, "Pause, extend or stop the run.")


def _check_text(text: str) -> None:
    if not text.strip():
        raise SpecError("text", "it is empty.", "Say what the agent should do.")
    if len(text) > TEXT_CHARACTERS:
        remedy = f"Use at most {TEXT_CHARACTERS:,}."
        raise SpecError("text", f"it has {len(text):,} characters.", remedy)


def _check_budgets(wanted: Budgets | None, run: Run) -> None:
    if wanted is None:
        raise SpecError("budgets", "none are given.", "Give the new limits.")
    if wanted == limits(run):
        raise SpecError("budgets", "these are its limits already.", "Give other limits.")
    state = _state(run)
    used = {
        "evaluations": state.evaluations_used,
        "wall_clock_s": state.wall_clock_s,
        "tokens": state.tokens,
        "dollars": state.dollars,
    }
    for field, amount in used.items():
        limit = getattr(wanted, field)
        if limit is not None and amount is not None and limit < amount:
            remedy = "Give more than that, or stop the run."
            raise SpecError(field, f"{amount:,.6g} are used already.", remedy)
