"""One objective, kept until it is reached or a budget ends.

The goal counts as reached when the lower end of a candidate's 95% interval reaches it: a lucky
median is not a result. An agent that finishes before is asked to go on in a fresh context, as long
as it has evaluated something new since it was last asked.
"""

from __future__ import annotations

from runner import tools, turns
from runner.agents import Agent
from runner.events import RunStatus
from runner.loop import Ending, Loop, describe, describe_best
from runner.turns import Progress, Stage

TITLE = "Goal: one objective until it is reached"
PLAYERS = 1
STAGE = Stage("goal", "goal", tools.names())


def run(loop: Loop, players: tuple[Agent, ...]) -> Ending:
    """Requests and budgets are looked at before each turn."""
    agent, ordinal = players[0], max(loop.conversation.ordinal, 1)
    while True:
        ending = reached(loop) or loop.ending()
        if ending is not None:
            return ending
        progress = turns.take(loop, agent, STAGE, ordinal)
        if progress is Progress.finished and _may_go_on(loop):
            ordinal += 1
        elif progress is not Progress.working:
            return ended(loop, progress)


def reached(loop: Loop) -> Ending | None:
    """The ending of a run whose goal is reached beyond doubt."""
    goal, best = loop.spec.goal_speedup, loop.state.best
    evaluation = loop.state.best_evaluation
    if goal is None or best is None or evaluation is None or (evaluation.floor or 0) < goal:
        return None
    return Ending(RunStatus.finished, f"goal of {goal:g}× reached by {describe(loop.state, best)}")


def ended(loop: Loop, progress: Progress) -> Ending:
    """The ending of a run whose agent will not go on."""
    best = describe_best(loop.state)
    tried = len(loop.state.candidates)
    match progress:
        case Progress.exhausted:
            words = f"nothing left to try after {tried} candidates"
            return Ending(RunStatus.finished, f"{words}; {best}")
        case Progress.stuck:
            words = f"the agent repeated one failing call {turns.STUCK_AFTER} times"
            return Ending(RunStatus.failed, f"{words}; {best}")
        case Progress.idle:
            words = f"the agent called no tool in {turns.IDLE_TURNS} turns"
            return Ending(RunStatus.failed, f"{words}; {best}")
    words = f"the agent finished after {tried} candidate{'' if tried == 1 else 's'}"
    return Ending(RunStatus.finished, f"{words}; {best}")


def _may_go_on(loop: Loop) -> bool:
    """The goal stands, the context just finished brought an evaluation, and there is whom to ask.

    An outside agent that says it is finished is gone.
    """
    goal = loop.spec.goal_speedup
    return goal is not None and loop.conversation.evaluated and not loop.spec.outside
