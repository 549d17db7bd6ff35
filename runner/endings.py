"""Why a workflow ends a run: its goal is reached, or its agents will not go on.

Budgets, people and defects end runs too: those endings are the loop's.
"""

from __future__ import annotations

from runner.events import RunStatus
from runner.loop import Ending, Loop, count, describe, describe_best
from runner.turns import IDLE_TURNS, Progress


def due(loop: Loop) -> Ending | None:
    """Why the run must end now: a person, its goal, a budget, or defects of ours."""
    if loop.call_under_way:  # what its call found may be the goal, and is to be told first
        return loop.ending()
    return reached(loop) or loop.ending()


def reached(loop: Loop) -> Ending | None:
    """The ending of a run whose goal is reached beyond doubt.

    The goal counts as reached when the lower end of a candidate's 95% interval reaches it: a lucky
    median is not a result.
    """
    goal, best = loop.spec.goal_speedup, loop.state.best
    evaluation = loop.state.best_evaluation
    if goal is None or best is None or evaluation is None or (evaluation.floor or 0) < goal:
        return None
    return Ending(RunStatus.finished, f"goal of {goal:g}× reached by {describe(loop.state, best)}")


def given_up(loop: Loop, progress: Progress) -> Ending:
    """The ending of a run whose agent will not go on."""
    match progress:
        case Progress.exhausted:
            return done(loop, f"nothing left to try after {_candidates(loop)}")
        case Progress.stuck:
            return _failed(loop, "the agent repeated failing calls to no avail")
        case Progress.idle:
            return _failed(loop, f"the agent called no tool in {IDLE_TURNS} turns")
    return done(loop, f"the agent finished after {_candidates(loop)}")


def done(loop: Loop, why: str) -> Ending:
    """The ending of a run that went as far as its workflow goes."""
    return Ending(RunStatus.finished, f"{why}; {describe_best(loop.state)}")


def _failed(loop: Loop, why: str) -> Ending:
    return Ending(RunStatus.failed, f"{why}; {describe_best(loop.state)}")


def _candidates(loop: Loop) -> str:
    return count(len(loop.state.candidates), "candidate")
