"""Reads the contract, the reference that judges, and what the device can do."""

from __future__ import annotations

from kernels.catalog import DRAWS, Case, Problem
from runner import prompts, units
from runner.loop import Answer
from runner.results import Ceiling
from runner.tools import Work


def read_problem(work: Work) -> Answer:
    """Read the whole contract: cases, tolerances, useful work, the reference and its baselines.

    Also the roofs of the device as far as they are measured. The contract is immutable.
    """
    loop = work.loop
    problem = loop.problem
    cases = problem.cases_in(loop.spec.case_set)
    reference = problem.reference_path.read_text(encoding="utf-8").strip()
    parts = [
        prompts.contract(loop),
        f"## Why it is worth optimising\n\n{problem.summary.strip()}",
        "## Useful work of each case\n\n" + "\n".join(map(_cost, cases)),
        "## How inputs are drawn\n\n" + "\n".join(_draws(problem, cases)),
        "## Roofs of the device\n\n" + _roofs(loop.state.ceilings),
        f"## The reference and the baselines\n\n{reference}",
    ]
    return Answer("\n\n".join(parts))


def _cost(case: Case) -> str:
    moved = units.bytes_iec(case.bytes_moved)
    intensity = units.significant(case.flops / case.bytes_moved)
    return f"- {case.name}: {case.flops:.3g} FLOP, {moved} moved, {intensity} FLOP per byte"


def _draws(problem: Problem, cases: tuple[Case, ...]) -> list[str]:
    """Each way in which an input of these cases is drawn, once."""
    lines: dict[str, None] = {}
    for case in cases:
        for argument in problem.inputs:
            draw = case.draws.get(argument.name, argument.draw)
            where = f" in {case.name}" if argument.name in case.draws else ""
            lines[f"- {argument.name}{where}: {draw}, {DRAWS[draw]}"] = None
    return list(lines)


def _roofs(ceilings: tuple[Ceiling, ...]) -> str:
    if not ceilings:
        return "None is measured yet for this device."
    return "\n".join(_roof(roof) for roof in ceilings)


def _roof(roof: Ceiling) -> str:
    if roof.value is None:
        return f"- {roof.name}: not known: {roof.detail}"
    is_rate = roof.unit == "FLOP/s"
    rate = units.rate_flops(roof.value, roof.dtype) if is_rate else units.rate_bytes(roof.value)
    return f"- {roof.name}: {rate}, {roof.source}"
