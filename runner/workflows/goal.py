"""One objective, kept until it is reached or a budget ends.

An agent that finishes before is asked to go on in a fresh context, as long as it has measured
something new since it was last asked.
"""

from __future__ import annotations

from runner import endings, stages, tools, turns
from runner.agents import Agent
from runner.loop import Ending, Loop
from runner.stages import Stage
from runner.turns import Progress

TITLE = "Goal: one objective until it is reached"
PLAYERS = 1
STAGE = Stage("goal", "goal", tools.names())


def run(loop: Loop, players: tuple[Agent, ...]) -> Ending:
    """Requests and budgets are looked at before each turn."""
    agent, ordinal = players[0], max(loop.conversation.ordinal, 1)
    while (ending := endings.due(loop)) is None:
        progress = turns.take(loop, agent, STAGE, ordinal)
        if progress is Progress.finished and _may_go_on(loop):
            ordinal += 1
        elif progress is not Progress.working:
            return endings.given_up(loop, progress)
    return ending


def _may_go_on(loop: Loop) -> bool:
    """The goal stands, the stage just finished brought a measurement, and there is whom to ask.

    An outside agent that says it is finished is gone.
    """
    goal = loop.spec.goal_speedup
    return goal is not None and stages.evaluations_used(loop) > 0 and not loop.spec.outside
