"""One objective, kept until it is reached or a budget ends: propose, evaluate, look, repeat.

The goal counts as reached when the lower end of a candidate's 95% interval reaches it: a lucky
median is not a result.
"""

from __future__ import annotations

from kernels.catalog import Problem
from runner.drive import Agent, Ending, Loop, describe, describe_best
from runner.events import RunStatus


def run(loop: Loop, agent: Agent, problem: Problem) -> Ending:
    """Each turn either proposes or evaluates; requests and budgets are looked at before each."""
    while True:
        ending = _reached(loop) or loop.ending()
        if ending is not None:
            return ending
        if loop.state.pending:
            loop.evaluate(loop.state.pending[0])
            continue
        proposal = agent.propose(problem, loop.state)
        if proposal is None:
            tried = f"nothing left to try after {len(loop.state.candidates)} candidates"
            return Ending(RunStatus.finished, f"{tried}; {describe_best(loop.state)}")
        loop.submit(agent.name, proposal)


def _reached(loop: Loop) -> Ending | None:
    goal, state = loop.spec.goal_speedup, loop.state
    if goal is None:
        return None
    for number in state.ranked:
        ci95 = state.evaluations[number].ci95
        if ci95 is not None and ci95[0] >= goal:
            reason = f"goal of {goal:g}× reached by {describe(state, number)}"
            return Ending(RunStatus.finished, reason)
    return None
