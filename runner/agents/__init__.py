"""Who acts. An agent is one module here with `create(spec) -> Agent`; its name is the module's.

There are two kinds. A Proposer names whole candidates, and each is evaluated; a Conversant talks
and uses tools, and is shown what they answer. Neither keeps anything in memory: what it does next
follows from the log. Importing this package imports no agent, so listing them costs nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from kernels.catalog import Problem
    from runner.conversation import Turn
    from runner.loop import Loop, Proposal
    from runner.spec import AgentSpec
    from runner.state import RunState
    from runner.tools import Tool

NOT_OFFERED = {"scripted", "replay"}  # built with their script, never launched by name


class ContextFull(Exception):
    """The model cannot take the conversation up again, for its length mostly: open a fresh one."""


class AgentFailed(Exception):
    """The agent cannot go on, and not for a defect of ours: no access, refusals, an endless fault.

    Its text is the reason that people read.
    """


@runtime_checkable
class Proposer(Protocol):
    """Names the next candidate; knows nothing of tools."""

    @property
    def name(self) -> str: ...

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        """The next candidate, or None when there is nothing left to try."""
        ...

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        """The closing words of a run that ends for `reason`."""
        ...


@runtime_checkable
class Conversant(Protocol):
    """Talks and calls tools. `closing_s` is how long its closing words may take."""

    @property
    def name(self) -> str: ...

    @property
    def closing_s(self) -> float: ...

    def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        """The next turn in `loop.conversation`. Calls `loop.heed` often and `loop.hint` as it goes.

        Raises TurnCut, ContextFull, AgentFailed and Interrupted.
        """
        ...

    def hand_over(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        """What whoever goes on in a fresh context must know; empty where it cannot be told.

        `tools` are those of the conversation: a model may take it up again only with the same ones.
        """
        ...

    def close(self, loop: Loop, reason: str) -> Turn:
        """The closing words of a run that ends for `reason`, from the state alone."""
        ...


Agent = Proposer | Conversant


def names() -> tuple[str, ...]:
    """The agents a run can name."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if name not in NOT_OFFERED))


def lacking(name: str) -> str:
    """Why this process cannot run the agent, such as for want of a key; empty if it can."""
    if name not in names():
        return f"there is no agent {name!r}"
    available = getattr(importlib.import_module(f"{__name__}.{name}"), "available", None)
    return available() if available else ""


def create(spec: AgentSpec) -> Agent:
    """A fresh agent; raises LookupError for a name that is not offered."""
    if spec.agent not in names():
        raise LookupError(f"no agent is called {spec.agent!r}; there are: {', '.join(names())}")
    agent: Agent = importlib.import_module(f"{__name__}.{spec.agent}").create(spec)
    return agent
