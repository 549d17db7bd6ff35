"""An agent that proposes given sources in order: the loop without chance, for tests."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.catalog import Problem
from runner.loop import Proposal
from runner.state import RunState


@dataclass(frozen=True)
class ScriptedAgent:
    """Proposes `sources` one after the other, each descending from the best so far."""

    sources: tuple[str, ...]
    language: str = "cpp"
    name: str = "scripted"

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        number = len(state.candidates) + 1
        if number > len(self.sources):
            return None
        idea = f"Script line {number}."
        return Proposal(self.sources[number - 1], self.language, state.best, idea)

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        return f"The script ended after {len(state.candidates)} of {len(self.sources)} sources."
