"""Fixed stages, each in a fresh context with its own brief and tools.

Research comes once; then write, profile and propose follow each other, round after round, as long
as a round finds something faster. What one stage leaves to the next are candidates, notes and the
summary that it finishes with. An agent that proposes whole candidates has no use for stages: it
goes on until nothing is left to try.
"""

from __future__ import annotations

from runner import endings, turns
from runner.agents import Agent
from runner.loop import Ending, Loop
from runner.stages import Stage
from runner.turns import Progress

TITLE = "Pipeline: research, then write, profile and propose, round after round"
PLAYERS = 1

READING = (
    "read_problem",
    "search_knowledge",
    "read_knowledge",
    "list_zoo",
    "read_zoo",
    "frontier",
    "read_candidate",
    "compare",
    "list_notes",
    "read_details",
)
WRITING = ("write_candidate", "edit_candidate", "copy_zoo", "compile_candidate")
EXAMINING = ("analyze", "simulate", "profile")
MEASURING = ("check", "benchmark")
LEAVING = ("write_note", "finish")

RESEARCH = Stage("research", "research", READING + LEAVING, turns=12)
ROUND = (
    Stage(
        "write",
        "write",
        READING + WRITING + EXAMINING + MEASURING + LEAVING,
        turns=40,
        evaluations=8,
    ),
    Stage("profile", "profile", READING + EXAMINING + LEAVING, turns=12),
    Stage("propose", "propose", READING + LEAVING, turns=6),
)


def run(loop: Loop, players: tuple[Agent, ...]) -> Ending:
    """Requests and budgets are looked at before each turn."""
    agent, ordinal = players[0], max(loop.conversation.ordinal, 1)
    while (ending := endings.due(loop)) is None:
        progress = turns.take(loop, agent, stage_of(ordinal), ordinal)
        if progress is Progress.finished:
            if stage_of(ordinal) is ROUND[-1] and not _improved(loop):
                return endings.done(loop, "a whole round brought nothing faster")
            ordinal += 1
        elif progress is not Progress.working:
            return endings.given_up(loop, progress)
    return ending


def stage_of(ordinal: int) -> Stage:
    """The stage of that number in the run, counted from 1."""
    return RESEARCH if ordinal == 1 else ROUND[(ordinal - 2) % len(ROUND)]


def _improved(loop: Loop) -> bool:
    """True if the best is another one than when the round that now ends began."""
    return loop.state.best != loop.state.stages[-len(ROUND)].best
