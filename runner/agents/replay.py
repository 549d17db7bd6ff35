"""Proposes the candidates of another run again, in their order, for a fresh evaluation.

It owns what is taken over from the other log: source, idea, language, parent and constants. Of
what was measured there it takes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.catalog import Problem
from runner.loop import Proposal
from runner.state import RunState

NAME = "replay"


@dataclass(frozen=True)
class ReplayAgent:
    """Proposes `proposals`; their parents are numbers of this run, because none is left out."""

    proposals: tuple[Proposal, ...]
    name: str = NAME

    @classmethod
    def of(cls, run: RunState, read: Callable[[str], bytes]) -> ReplayAgent:
        """An agent for the candidates of `run`, whose artifacts `read` gives by digest."""
        return cls(
            tuple(
                Proposal(
                    source=read(candidate.source_sha256).decode(),
                    language=candidate.language,
                    parent=candidate.parent,
                    idea=candidate.idea,
                    kernel=candidate.kernel,
                    constants=candidate.constants,
                    message=f"c{number} of run {run.run}, by {candidate.author}: {candidate.idea}",
                )
                for number, candidate in run.candidates.items()
            )
        )

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        """The next one, or None when all have been proposed."""
        done = len(state.candidates)
        return self.proposals[done] if done < len(self.proposals) else None

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        done = len(state.candidates)
        return f"Proposed {done} of {len(self.proposals)} candidates of an earlier run again."
