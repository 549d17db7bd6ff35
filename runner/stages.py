"""Stages of a workflow: what each may do, and what it has left of its share.

A stage opens with a brief. What it has used is counted from the log alone; when the next one
opens is the workflow's business.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner import prompts, tools
from runner.conversation import BENCHMARK, CHECK, FINISH, Call
from runner.loop import Answer, Loop, count
from runner.state import Opening

SHARE_USED = tools.refusal(
    "evaluations",
    "the share of this part of the run is used.",
    "Call finish: whoever goes on starts from what is measured and noted.",
)
NOTHING_MEASURED = tools.refusal(
    "evaluations",
    "nothing has been measured, so there is no result to finish with.",
    "Benchmark a candidate, or say plainly that you give up by calling finish again.",
)


@dataclass(frozen=True)
class Stage:
    """A part of a workflow: `prompt` names the file of its brief, `tools` what may be called.

    `turns` and `evaluations` are its share; None is no limit but the run's. When a share is used,
    its agent has one turn left to say what must not be lost.
    """

    name: str
    prompt: str
    tools: tuple[str, ...]
    turns: int | None = None
    evaluations: int | None = None


def evaluations_used(loop: Loop) -> int:
    """Measurements since the stage opened."""
    return loop.state.evaluations_used - _opening(loop).evaluations


def share(stage: Stage) -> str:
    """What a stage that opens may use, for its brief; empty where only the run has limits."""
    return _share(stage.evaluations, stage.turns)


def left(loop: Loop, stage: Stage) -> str:
    """What is left of the share of the stage under way, for its brief in a fresh context."""
    evaluations, talked = stage.evaluations, stage.turns
    if evaluations is not None:
        evaluations = max(evaluations - evaluations_used(loop), 0)
    if talked is not None:
        talked = max(talked - _turns_used(loop), 1)
    return _share(evaluations, talked)


def refusal(loop: Loop, stage: Stage, call: Call) -> Answer | None:
    """Why a call that the stage offers is not made after all; it was begun in the log."""
    if call.tool in (CHECK, BENCHMARK):
        used = loop.state.used_before_call - _opening(loop).evaluations
        if stage.evaluations is not None and used >= stage.evaluations:
            return SHARE_USED
    if call.tool == FINISH and BENCHMARK in stage.tools and not evaluations_used(loop):
        known = loop.conversation.was_answered(FINISH, NOTHING_MEASURED.text)
        return None if known else NOTHING_MEASURED
    return None


def ends_with_next_turn(loop: Loop, stage: Stage) -> bool:
    """True when the next turn is the last one of the stage's share."""
    measured = stage.evaluations is not None and evaluations_used(loop) >= stage.evaluations
    return measured or (stage.turns is not None and _turns_used(loop) >= stage.turns - 1)


def over(loop: Loop) -> bool:
    """True once the agent has taken the turn that it was told is its last."""
    return loop.conversation.turned_since(prompts.text("last_turn"))


def summary(loop: Loop) -> str:
    """What the agent of the stage under way leaves to whoever comes next; empty if nothing."""
    last = loop.conversation.last_turn
    if last is None:
        return ""
    turn = loop.turn(last.sha256)
    finishes = [call.arguments.get("summary") for call in turn.calls if call.tool == FINISH]
    words = [text for text in finishes if isinstance(text, str)]
    return (words[-1] if words else turn.text).strip()


def _share(evaluations: int | None, talked: int | None) -> str:
    parts = []
    if evaluations is not None:
        parts.append(count(evaluations, "evaluation"))
    if talked is not None:
        parts.append(count(talked, "turn"))
    return f"Your share of the run's budget: {' and '.join(parts)}." if parts else ""


def _turns_used(loop: Loop) -> int:
    return sum(loop.state.turns.values()) - _opening(loop).turns


def _opening(loop: Loop) -> Opening:
    return loop.state.stages[-1]
