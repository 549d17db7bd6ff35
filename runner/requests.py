"""What people may ask of a run under way: the rules alone.

Where requests are kept, and who may make them, is somebody else's business; what they change is
the loop's.
"""

from __future__ import annotations

from collections.abc import Sequence

from runner.events import ControlAction, ControlPayload
from runner.spec import Budgets, RunSpec, SpecError
from runner.state import RunState

TEXT_CHARACTERS = 4_000
DEAF = {"search", "scripted", "replay"}  # agents that propose, and read nothing


def check(spec: RunSpec, wanted: ControlPayload, earlier: Sequence[ControlPayload]) -> None:
    """Raises SpecError unless `wanted` may follow the requests made so far.

    What an extension gives is for `check_extension` to judge, which has to know the log.
    """
    for request in earlier:
        if request.action is ControlAction.stop:
            remedy = "It ends after the step under way."
            raise SpecError("action", f"{request.by} asked it to stop before.", remedy)
    match wanted.action:
        case ControlAction.pause | ControlAction.resume:
            _check_turn(wanted.action, earlier)
        case ControlAction.steer:
            _check_listens(spec)
            _check_text(wanted.text)


def check_extension(
    spec: RunSpec, state: RunState, wanted: Budgets | None, earlier: Sequence[ControlPayload]
) -> None:
    """Raises SpecError unless these limits differ and leave room for what is used."""
    if wanted is None or wanted == limits(spec, state, earlier):
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


def limits(spec: RunSpec, state: RunState, earlier: Sequence[ControlPayload]) -> Budgets:
    """The budgets that hold once all earlier requests have taken effect."""
    for request in reversed(earlier):
        if request.action is ControlAction.extend and request.budgets is not None:
            return request.budgets
    return state.extended or spec.budgets


def listens(spec: RunSpec) -> bool:
    """True where some agent of the run reads what people tell it."""
    return any(player.agent not in DEAF for player in spec.players)


def _check_turn(action: ControlAction, earlier: Sequence[ControlPayload]) -> None:
    turns = [each for each in earlier if each.action in (ControlAction.pause, ControlAction.resume)]
    paused = bool(turns) and turns[-1].action is ControlAction.pause
    if paused and action is ControlAction.pause:
        raise SpecError("action", f"{turns[-1].by} asked it to pause before.", "Resume or stop it.")
    if not paused and action is ControlAction.resume:
        raise SpecError("action", "it is not paused.", "Pause it first.")


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
