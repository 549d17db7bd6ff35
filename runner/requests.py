"""What people may ask of a run under way: the rules alone.

Where requests are kept, and who may make them, is somebody else's business; what they change is
the loop's.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.events import ControlAction, ControlPayload
from runner.spec import Budgets, SpecError
from runner.state import RunState

TEXT_CHARACTERS = 4_000


def check(state: RunState, wanted: ControlPayload, earlier: Sequence[ControlPayload]) -> None:
    """Raises SpecError unless `wanted` may follow the requests made so far."""
    for request in earlier:
        if request.action is ControlAction.stop:
            remedy = "It ends after the step under way."
            raise SpecError("action", f"{request.by} asked it to stop before.", remedy)
    match wanted.action:
        case ControlAction.pause | ControlAction.resume:
            _check_turn(wanted.action, earlier)
        case ControlAction.steer:
            _check_text(wanted.text)
        case ControlAction.extend:
            _check_budgets(wanted.budgets, state, earlier)


def limits(state: RunState, earlier: Sequence[ControlPayload]) -> Budgets:
    """The budgets that hold once all earlier requests have taken effect."""
    for request in reversed(earlier):
        if request.action is ControlAction.extend and request.budgets is not None:
            return request.budgets
    return state.limits


def _check_turn(action: ControlAction, earlier: Sequence[ControlPayload]) -> None:
    turns = [each for each in earlier if each.action in (ControlAction.pause, ControlAction.resume)]
    paused = bool(turns) and turns[-1].action is ControlAction.pause
    if paused and action is ControlAction.pause:
        raise SpecError("action", f"{turns[-1].by} asked it to pause before.", "Resume or stop it.")
    if not paused and action is ControlAction.resume:
        raise SpecError("action", "it is not paused.", "Pause it first.")


def _check_text(text: str) -> None:
    if not text.strip():
        raise SpecError("text", "it is empty.", "Say what the agent should do.")
    if len(text) > TEXT_CHARACTERS:
        remedy = f"Use at most {TEXT_CHARACTERS:,}."
        raise SpecError("text", f"it has {len(text):,} characters.", remedy)


def _check_budgets(
    wanted: Budgets | None, state: RunState, earlier: Sequence[ControlPayload]
) -> None:
    if wanted is None or wanted == limits(state, earlier):
        raise SpecError("budgets", "these are its limits already.", "Give other limits.")
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
