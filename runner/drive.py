"""Drives one run from its spec to its last event, and resumes one from its log."""

from __future__ import annotations

import time
from collections.abc import Callable

from runner import agents, turns, workflows
from runner.agents import Agent, AgentFailed, Conversant
from runner.events import RunStatus
from runner.loop import (
    Control,
    Ending,
    Evaluator,
    Examiner,
    Interrupted,
    Library,
    Log,
    Loop,
    describe_best,
)
from runner.spec import AgentSpec, RunSpec, SpecError

Create = Callable[[AgentSpec], Agent]


def drive(
    spec: RunSpec,
    log: Log,
    evaluator: Evaluator,
    control: Control,
    *,
    clock: Callable[[], float] = time.monotonic,
    create: Create = agents.create,
    examiner: Examiner | None = None,
    library: Library | None = None,
) -> RunStatus:
    """Drive a run to its end and return how it ended; an ended run is left as it is.

    `create` builds the agents that the spec names. Raises Interrupted with the log left resumable;
    a defect of ours is logged, ends the run as failed and is raised again.
    """
    loop = Loop(spec, log, evaluator, control, clock=clock, examiner=examiner, library=library)
    if loop.state.status.ended:
        return loop.state.status
    try:
        loop.open()
        spec.validate()
        players = tuple(create(player) for player in spec.players)
        waits = [player.closing_s for player in players if isinstance(player, Conversant)]
        loop.closing_s = min(max(waits, default=0.0), spec.budgets.wall_clock_s / 4)
        ending = _work(loop, players)
        turns.close(loop, _last_word(players), ending.reason)
        return loop.close(ending)
    except Interrupted:
        raise
    except SpecError as error:
        return loop.close(Ending(RunStatus.failed, str(error)))
    except Exception as error:
        loop.fail(error)
        raise


def _last_word(players: tuple[Agent, ...]) -> Agent:
    """Whose closing words a run gets: those of an agent that talks, where there is one."""
    talkers = [player for player in players if isinstance(player, Conversant)]
    return (talkers or players)[-1]


def _work(loop: Loop, players: tuple[Agent, ...]) -> Ending:
    try:
        return workflows.get(loop.spec.workflow).run(loop, players)
    except AgentFailed as failed:
        return Ending(RunStatus.failed, f"{failed}; {describe_best(loop.state)}")
