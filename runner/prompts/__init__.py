"""What agents are told, as Markdown files in this folder with `$name` where a value stands.

Owns the words and nothing else. A brief says everything that an agent needs in a fresh context:
the contract, what has been measured, what was noted.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Any, Protocol

from kernels.catalog import Argument, Case, Problem
from runner import units
from runner.loop import Loop, count, describe, describe_best
from runner.results import Verdict
from runner.spec import RunSpec

FOLDER = Path(__file__).parent
LISTED = 8  # frontier candidates and failures that a brief names
NOTES = 12  # the latest; older ones are for the tool that lists them
NOTE_CHARACTERS = 600
HANDED_CHARACTERS = 8_000


@functools.cache
def text(name: str) -> str:
    """A file without values in it."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()


def render(name: str, **values: Any) -> str:
    """A file with its values; raises KeyError for one that is missing."""
    return Template(text(name)).substitute(values)


class Setting(Protocol):
    """What is the same all through a run. A loop is one."""

    @property
    def spec(self) -> RunSpec: ...

    @property
    def problem(self) -> Problem: ...


def system(setting: Setting) -> str:
    """What holds for every agent and every stage."""
    return render("system", contract=contract(setting))


def objective(setting: Setting, name: str) -> str:
    """A stage's own words: the file of that name with what the run is about."""
    goal = setting.spec.goal_speedup
    return render(
        name,
        problem=setting.problem.title,
        device=setting.spec.device,
        language=setting.spec.language,
        goal="as fast as you can" if goal is None else f"a speedup of at least {goal:g}×",
        first_case=first_case(setting).name,
    )


@dataclass(frozen=True)
class Handed:
    """What an earlier context leaves to a fresh one, and from whom it is."""

    giver: str
    text: str


def brief(loop: Loop, name: str, share: str, handed: Handed | None = None) -> str:
    """The opening of a context: the stage's own words and its share, then where the run stands."""
    parts = [*filter(None, (objective(loop, name), share)), standing(loop)]
    if handed is not None and handed.text.strip():
        parts.append(f"## From {handed.giver}\n\n{handed.text.strip()[:HANDED_CHARACTERS]}")
    return "\n\n".join(parts)


def standing(loop: Loop) -> str:
    """Where the run stands: frontier, failures, notes and what is left, as Markdown."""
    parts = [f"## Where the run stands\n\n{left(loop)}", _frontier(loop), _failures(loop)]
    notes = [
        f"- {note.author}: {note.text[:NOTE_CHARACTERS]}" for note in loop.state.notes[-NOTES:]
    ]
    if notes:
        parts.append("### Notes\n\n" + "\n".join(notes))
    return "\n\n".join(part for part in parts if part)


def measured(loop: Loop, reason: str) -> str:
    """The harness's own words at the end of a run, from what was measured alone."""
    state = loop.state
    passed = sum(each.verdict is Verdict.passed for each in state.evaluations.values())
    candidates = count(len(state.candidates), "candidate")
    counts = f"{candidates}, {count(state.evaluations_used, 'evaluation')}"
    best = describe_best(state)
    why = reason.removesuffix(f"; {best}")
    return f"Measured by the harness: {best}. {counts}, {passed} passed. Ended: {why}."


def first_case(setting: Setting) -> Case:
    """The case to optimise first: the first scored one of the run's set."""
    return next(case for case in setting.problem.cases_in(setting.spec.case_set) if case.scored)


def contract(setting: Setting) -> str:
    """What a kernel of the problem must do, in the words of the catalog."""
    problem, language = setting.problem, setting.spec.language
    cases = problem.cases_in(setting.spec.case_set)
    dtypes = dict.fromkeys(case.dtype for case in cases)
    return render(
        "contract",
        title=problem.title,
        maths=problem.maths.strip(),
        signature=_signature(problem, language, tuple(dtypes)),
        tensors="\n".join(_tensor_line(problem, each) for each in problem.inputs + problem.outputs),
        cases="\n".join(_case_line(case) for case in cases),
        tolerances="\n".join(
            f"- {dtype}: norm {problem.tolerances[dtype].norm:g}, each element"
            f" {problem.tolerances[dtype].element:g}"
            for dtype in dtypes
        ),
    )


def _signature(problem: Problem, language: str, dtypes: tuple[str, ...]) -> str:
    if language == "cpp":
        return "\n".join(f"{problem.cpp_prototype(dtype)};" for dtype in dtypes)
    names = ", ".join(argument.name for argument in problem.inputs)
    outputs = ", ".join(argument.name for argument in problem.outputs)
    return f"def run({names}):  # returns {outputs}"


def _tensor_line(problem: Problem, argument: Argument) -> str:
    role = "output" if argument in problem.outputs else "input"
    dtype = argument.dtype or "the dtype of the case"
    return f"- {argument.name} [{', '.join(argument.shape)}]: {role}, {dtype}"


def left(loop: Loop) -> str:
    """The budgets as an agent should know them."""
    limits, state = loop.state.limits, loop.state
    parts = [f"{state.evaluations_used} of {limits.evaluations} evaluations used"]
    parts.append(f"{units.seconds(max(loop.seconds_left, 0))} left")
    if loop.tokens_left is not None:
        parts.append(f"{max(loop.tokens_left, 0):,} tokens left")
    if limits.dollars is not None and state.dollars is not None:
        parts.append(f"${state.dollars:.2f} of ${limits.dollars:.2f} spent")
    best = describe_best(state)
    return f"Budget: {', '.join(parts)}. {best[:1].upper()}{best[1:]}."


def _frontier(loop: Loop) -> str:
    rows = [
        f"- {describe(loop.state, number)}: {loop.state.candidates[number].idea}"
        for number in loop.state.frontier[:LISTED]
    ]
    return "### Frontier\n\n" + "\n".join(rows) if rows else ""


def _failures(loop: Loop) -> str:
    failed = [
        f"- c{number} {each.verdict.value}: {' '.join(each.reason.split())[:200]}"
        for number, each in loop.state.evaluations.items()
        if each.verdict is not Verdict.passed
    ]
    return "### Failed\n\n" + "\n".join(failed[-LISTED:]) if failed else ""


def _case_line(case: Case) -> str:
    dims = ", ".join(f"{name}={size}" for name, size in case.dims.items())
    scored = "timed" if case.scored else "checked only"
    note = f"; {case.note}" if case.note else ""
    return f"- {case.name}: {case.dtype}, {dims}, {scored}{note}"
