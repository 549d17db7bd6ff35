"""Who acts and when to stop. A workflow is one module here with `run(loop, players)`.

The module's name is the workflow's name; nothing else registers it. `PLAYERS` is how many agents it
takes, `TITLE` what a form calls it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from runner.agents import Agent
    from runner.loop import Ending, Loop


class Workflow(Protocol):
    PLAYERS: int
    TITLE: str

    def run(self, loop: Loop, players: tuple[Agent, ...]) -> Ending:
        """Work until the run must end, and say why it does. Must survive a restart at any event."""
        ...


def names() -> tuple[str, ...]:
    """The workflows a run can name."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def get(name: str) -> Workflow:
    """Raises LookupError for a name that is not offered."""
    if name not in names():
        raise LookupError(f"no workflow is called {name!r}; there are: {', '.join(names())}")
    return cast(Workflow, importlib.import_module(f"{__name__}.{name}"))
