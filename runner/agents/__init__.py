"""Who proposes the next candidate. An agent is one module here with `create() -> Agent`.

The module's name is the agent's name; nothing else registers it. Importing this package imports no
agent, so listing them costs nothing.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from runner.drive import Agent

NOT_OFFERED = {"scripted"}  # built by tests with their sources, never launched by name


def names() -> tuple[str, ...]:
    """The agents a run can name."""
    found = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name for name in found if name not in NOT_OFFERED))


def create(name: str) -> Agent:
    """A fresh agent; raises LookupError for a name that is not offered."""
    if name not in names():
        raise LookupError(f"no agent is called {name!r}; there are: {', '.join(names())}")
    agent: Agent = importlib.import_module(f"{__name__}.{name}").create()
    return agent
