"""Who acts and when to stop. A workflow is one module here with `run(loop, agent, problem)`.

The module's name is the workflow's name; nothing else registers it.
"""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from kernels.catalog import Problem
    from runner.drive import Agent, Ending, Loop


class Workflow(Protocol):
    def run(self, loop: Loop, agent: Agent, problem: Problem) -> Ending:
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
