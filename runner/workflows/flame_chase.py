"""Two agents in turn, each in a fresh context over the same notes, frontier and source.

Each leg is a stage: it ends when its agent finishes or has used its share, and the other one
starts from what was measured. An agent that proposes whole candidates has one to a leg.
"""

from __future__ import annotations

from runner import endings, stages, tools, turns
from runner.agents import Agent, Proposer
from runner.loop import Ending, Loop
from runner.stages import Stage
from runner.turns import Progress

TITLE = "Flame chase: two agents in turn, each beginning afresh from the other's best"
PLAYERS = 2
LEG = Stage("leg", "chase", tools.names(), turns=40, evaluations=6)


def run(loop: Loop, players: tuple[Agent, ...]) -> Ending:
    """Requests and budgets are looked at before each turn."""
    ordinal = max(loop.conversation.ordinal, 1)
    while (ending := endings.due(loop)) is None:
        player = _player(players, ordinal)
        if loop.conversation.ordinal != ordinal:
            turns.start(loop, player, LEG, ordinal)
            continue
        proposed = _proposed(loop, player)
        progress = Progress.finished if proposed else turns.take(loop, player, LEG, ordinal)
        if progress in (Progress.stuck, Progress.idle):
            return endings.given_up(loop, progress)
        if progress is not Progress.working:
            if _burnt_out(loop, players):
                return endings.done(loop, "neither agent found anything more")
            ordinal += 1
    return ending


def _player(players: tuple[Agent, ...], ordinal: int) -> Agent:
    return players[(ordinal - 1) % PLAYERS]


def _proposed(loop: Loop, player: Agent) -> bool:
    """True once an agent that proposes whole candidates has had its one."""
    return isinstance(player, Proposer) and stages.evaluations_used(loop) > 0


def _burnt_out(loop: Loop, players: tuple[Agent, ...]) -> bool:
    """True if the last leg of each agent was barren.

    That of an agent that talks is when it found nothing faster; one that proposes may go on as
    long as it has something to propose: most proposals of a search are no improvement.
    """
    if len(loop.state.stages) < PLAYERS:
        return False
    before, latest = loop.state.stages[-PLAYERS:]
    ends = ((before, latest.evaluations, latest.best), (latest, _used(loop), loop.state.best))
    return all(
        evaluations == leg.evaluations
        if isinstance(_player(players, leg.ordinal), Proposer)
        else best == leg.best
        for leg, evaluations, best in ends
    )


def _used(loop: Loop) -> int:
    return loop.state.evaluations_used
