"""What is asked of a simulation, checked against the catalog; and which case is the small one."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from kernels.catalog import Case, Problem
from runner.evaluate.buffers import set_bytes
from runner.spec import Limits, SpecError, known_case, known_problem

DEADLINE_S = 60.0
LIMIT_BYTES = 1 << 30  # the shadow of a tensor takes several times its memory


@dataclass(frozen=True)
class SimulationSpec:
    """What to simulate. `case` None is the problem's small case; `file` names the source.

    `deadline_s` bounds each run of the candidate.
    """

    problem: str
    source: str
    language: str = "triton"
    case: str | None = None
    file: str = "candidate.py"
    deadline_s: float = DEADLINE_S
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Request:
    """A validated SimulationSpec with all it refers to."""

    spec: SimulationSpec
    problem: Problem
    case: Case
    cancel: threading.Event | None

    @classmethod
    def of(cls, spec: SimulationSpec, cancel: threading.Event | None) -> Request:
        problem = known_problem(spec.problem)
        if spec.language != "triton":
            remedy = "Give a Python file with Triton kernels."
            raise SpecError("language", f"{spec.language!r} is not simulated.", remedy)
        case = small_case(problem) if spec.case is None else known_case(problem, spec.case)
        if set_bytes(problem, case) > LIMIT_BYTES:
            words = f"{case.name} has more than {LIMIT_BYTES >> 20} MiB of tensors."
            raise SpecError(
                "case", words, f"Use a smaller one, such as {small_case(problem).name}."
            )
        return cls(spec, problem, case, cancel)


def small_case(problem: Problem) -> Case:
    """The smallest odd case of a GPU set: no dimension of 1, inputs drawn as usual, bf16 first."""

    def rank(case: Case) -> tuple[bool, bool, bool, bool, int]:
        on_gpu = any(name.startswith("gpu") for name in case.sets)
        flat = min(case.dims.values(), default=1) < 16
        return not on_gpu, flat, bool(case.draws), case.scored, case.bytes_moved + case.flops // 64

    return min(problem.cases, key=rank)
