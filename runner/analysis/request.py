"""What to analyse: a request, checked against catalog and targets before anything starts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kernels.catalog import LANGUAGES, Case, Problem
from runner.analysis.targets import DEFAULT, TARGETS, Target
from runner.spec import Limits, SpecError, known_case, known_problem

DEADLINE_S = 60.0


@dataclass(frozen=True)
class AnalysisSpec:
    """What to analyse. `case` None is the first scored case of a GPU set; `file` names the source.

    `deadline_s` bounds the candidate's own work, compilation of its kernels included.
    """

    problem: str
    source: str
    language: str = "triton"
    target: str = DEFAULT
    case: str | None = None
    file: str = "candidate.py"
    deadline_s: float = DEADLINE_S
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Request:
    """A validated AnalysisSpec with all it refers to."""

    spec: AnalysisSpec
    problem: Problem
    case: Case
    target: Target
    cancel: threading.Event | None

    @classmethod
    def of(cls, spec: AnalysisSpec, cancel: threading.Event | None) -> Request:
        problem = known_problem(spec.problem)
        if spec.language not in LANGUAGES:
            remedy = f"Use one of: {', '.join(LANGUAGES)}."
            raise SpecError("language", f"{spec.language!r} is not analysed.", remedy)
        if spec.target not in TARGETS:
            remedy = f"Use one of: {', '.join(TARGETS)}."
            raise SpecError("arch", f"{spec.target!r} is not a known target.", remedy)
        return cls(spec, problem, _case(problem, spec.case), TARGETS[spec.target], cancel)


def _case(problem: Problem, name: str | None) -> Case:
    """The case of that name; without one the first scored case of a GPU set, or of any."""
    if name is None:
        scored = [case for case in problem.cases if case.scored]
        on_gpu = [case for case in scored if any(each.startswith("gpu") for each in case.sets)]
        return (on_gpu or scored)[0]
    return known_case(problem, name)
