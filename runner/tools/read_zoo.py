"""Reads one reviewed kernel of the run's problem."""

from __future__ import annotations

from kernels.catalog import Parameter, ZooKernel
from runner.answers.text import page
from runner.loop import Answer, Loop
from runner.spec import SpecError
from runner.tools import Work


def read_zoo(work: Work, kernel: str, first_line: int = 1, last_line: int = 0) -> Answer:
    """Read a reviewed kernel: its idea and scope, its tuning constants, and its whole source.

    Arguments:
        kernel: Its name, as list_zoo gives it.
        first_line: The first line of the source to show.
        last_line: The last line of the source to show; 0 is the end.
    """
    found = known_kernel(work.loop, kernel)
    lines = [f"{found.name} ({found.language}): {found.idea.strip()}"]
    lines.append(f"Scope: {found.scope.strip()}")
    lines += map(_parameter, found.parameters)
    return Answer("\n".join([*lines, "", page(found.source, first_line, last_line)]))


def known_kernel(loop: Loop, name: str) -> ZooKernel:
    """The zoo kernel of the run's problem of that name; raises SpecError."""
    for kernel in loop.problem.zoo:
        if kernel.name == name:
            return kernel
    remedy = f"Use one of: {', '.join(kernel.name for kernel in loop.problem.zoo)}."
    raise SpecError("kernel", f"{loop.problem.slug} has no zoo kernel {name[:80]!r}.", remedy)


def _parameter(parameter: Parameter) -> str:
    values = ", ".join(map(str, parameter.values))
    return f"- {parameter.name} = {parameter.default} (one of {values}): {parameter.why}"
