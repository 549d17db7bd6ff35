"""Lists the reviewed kernels of the run's problem."""

from __future__ import annotations

from kernels.catalog import ZooKernel
from runner.answers.text import one_line
from runner.loop import Answer
from runner.tools import Work


def list_zoo(work: Work) -> Answer:
    """List the reviewed kernels of this problem: what each does and which constants tune it.

    Kernels in the language of this run come first; those in others are there for their ideas.
    """
    language = work.loop.spec.language
    kernels = sorted(work.loop.problem.zoo, key=lambda kernel: kernel.language != language)
    return Answer("\n".join([*map(_kernel, kernels), "read_zoo shows a kernel's source."]))


def _kernel(kernel: ZooKernel) -> str:
    constants = ", ".join(parameter.name for parameter in kernel.parameters)
    lines = [f"- {kernel.name} ({kernel.language}): {one_line(kernel.idea, 400)}"]
    lines.append(f"  scope: {one_line(kernel.scope, 400)}")
    if constants:
        lines.append(f"  constants: {constants}")
    return "\n".join(lines)
