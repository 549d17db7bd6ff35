"""Makes a zoo kernel a candidate, with tuning constants of the agent's choice."""

from __future__ import annotations

from kernels.catalog import ZooKernel
from runner.loop import Answer, Proposal
from runner.spec import SpecError
from runner.tools import Work
from runner.tools.read_zoo import known_kernel
from runner.tools.write_candidate import submit
from runner.tuning import Setting


def copy_zoo(work: Work, kernel: str, constants: dict[str, int], idea: str) -> Answer:
    """Make a zoo kernel a candidate without writing it out. It is analysed at once, not measured.

    The cheapest start: edit_candidate then changes it further.

    Arguments:
        kernel: Its name, as list_zoo gives it; in the language of this run.
        constants: Values of its tuning constants; those left out keep their defaults.
        idea: What is new in it and why that should pay, in one sentence.
    """
    found = known_kernel(work.loop, kernel)
    language = work.loop.spec.language
    if found.language != language:
        fitting = ", ".join(each.name for each in work.loop.problem.kernels(language)) or "none"
        problem = f"{found.name} is {found.language}; this run is in {language}."
        raise SpecError("kernel", problem, f"Kernels in {language}: {fitting}.")
    setting = _setting(found, constants)
    proposal = Proposal(setting.source, language, None, idea, found.name, setting.constants)
    return submit(work, proposal)


def _setting(kernel: ZooKernel, constants: dict[str, int]) -> Setting:
    """Raises SpecError for a constant or a value that the kernel does not offer."""
    offered = {parameter.name: parameter for parameter in kernel.parameters}
    for name, value in constants.items():
        if name not in offered:
            remedy = f"Use some of: {', '.join(offered)}."
            raise SpecError("constants", f"{kernel.name} has no constant {name[:80]!r}.", remedy)
        if value not in offered[name].values:
            remedy = f"Use one of: {', '.join(map(str, offered[name].values))}."
            raise SpecError("constants", f"{name} = {value} is not offered.", remedy)
    values = (constants.get(name, each.default) for name, each in offered.items())
    return Setting(kernel, tuple(values))
