"""Agents that follow a script, one of each kind: the loop without chance, for tests.

Where in its script an agent is follows from the log, as it does for every agent.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.catalog import Problem
from runner.agents import AgentFailed
from runner.conversation import Turn
from runner.loop import Loop, Proposal
from runner.state import RunState
from runner.tools import Tool


@dataclass(frozen=True)
class ScriptedAgent:
    """Proposes `sources` one after the other, each descending from the best so far."""

    sources: tuple[str, ...]
    language: str = "cpp"
    name: str = "scripted"

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        number = self._proposed(state) + 1
        if number > len(self.sources):
            return None
        idea = f"Script line {number}."
        return Proposal(self.sources[number - 1], self.language, state.best, idea)

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        done = self._proposed(state)
        return f"The script ended after {done} of {len(self.sources)} sources."

    def _proposed(self, state: RunState) -> int:
        return sum(candidate.author == self.name for candidate in state.candidates.values())


@dataclass(frozen=True)
class ScriptedConversant:
    """Takes `turns` one after the other, whatever it is told; `closing` are its last words."""

    turns: tuple[Turn, ...]
    closing: Turn = field(default_factory=Turn)
    name: str = "scripted"
    closing_s: float = 0.0

    def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        """Raises AgentFailed where the script ends."""
        loop.heed()
        taken = loop.state.turns.get(self.name, 0)
        if taken >= len(self.turns):
            raise AgentFailed(f"the script ended after {taken} turns")
        return self.turns[taken]

    def hand_over(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        return Turn()

    def close(self, loop: Loop, reason: str) -> Turn:
        return self.closing
