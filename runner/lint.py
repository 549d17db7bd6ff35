"""Examines problems: what does not compute an answer must fail every case, what does must pass.

Owns the degenerate kernels and the words about them. How inputs look and how outputs compare is
the business of the evaluation itself: the draws, the oracle and the judge are the very same.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from kernels.catalog import (
    ROOT,
    Case,
    CatalogError,
    Problem,
    Tolerance,
    UnknownProblem,
    read_problem,
    slugs,
)
from runner.evaluate.baseline import offered
from runner.evaluate.draws import draw, draw_name
from runner.evaluate.judge import Oracle
from runner.evaluate.referee import load_reference, oracles, summary
from runner.evaluate.session import CHECKED_SETS
from runner.evaluate.tensors import DTYPES, poisoned
from runner.results import Verdict
from runner.spec import SpecError

ELEMENTS = 2**19  # of all tensors of a case together: a whole problem is examined in seconds
SMALLEST = 2  # a dimension that is shrunk keeps two, or a repeated row would be the answer
SEED = 20260301  # the same inputs each time: what is refused today is not accepted tomorrow
MANTISSA_BITS = {"fp32": 23, "fp16": 10, "bf16": 7}
COARSER_BITS = {"fp32": 10, "fp16": 7, "bf16": 3}  # TF32 and fp16, bf16, fp8 with any exponent
SCOPE = (
    f"inputs as the evaluation draws them, {CHECKED_SETS} draws a case, on the host in torch;"
    f" cases of more than {ELEMENTS:,} elements are shrunk to that, leading output dimensions"
    " first, so that rows and sums keep their length as long as possible. Kernels are stood for by"
    " their outputs: what a kernel does beside its output is not examined here."
)
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Trial:
    """One kernel on one case: the most lenient outcome of all draws, and whether that is right.

    `exact` means within one rounding of the answer: no tolerance could tell it from the answer.
    """

    kernel: str
    honest: bool
    accepted: bool
    exact: bool
    as_it_should: bool
    max_rel_error: float | None
    norm_error: float | None
    reason: str


@dataclass(frozen=True)
class CaseReport:
    case: str
    scored: bool
    dtype: str
    dims: dict[str, int]
    examined_dims: dict[str, int]
    tolerance: Tolerance
    trials: tuple[Trial, ...]

    @property
    def admissible(self) -> bool:
        return all(trial.as_it_should for trial in self.trials)


@dataclass(frozen=True)
class Report:
    problem: str
    admissible: bool
    cases: tuple[CaseReport, ...]
    scope: str = SCOPE


@dataclass(frozen=True)
class Drawn:
    """One draw of a case: its inputs, the answer to them in float64, and the inputs of another."""

    problem: Problem
    case: Case
    module: Any
    inputs: Tensors
    others: Tensors

    @functools.cached_property
    def oracles(self) -> tuple[Oracle, ...]:
        with _blamed_on_reference():
            return oracles(self.module, self.problem, self.case, self.inputs)

    @property
    def answer(self) -> Tensors:
        return tuple(oracle.values.double() for oracle in self.oracles)

    def answer_to(self, inputs: Tensors) -> Tensors:
        with _blamed_on_reference():
            found = oracles(self.module, self.problem, self.case, inputs)
        return tuple(oracle.values for oracle in found)


def folder_of(name: str) -> Path:
    """A problem's folder: any that holds a `problem.toml`, or one of the catalog by its slug."""
    if (Path(name) / "problem.toml").is_file():
        return Path(name).resolve()
    if name not in slugs():
        unknown = UnknownProblem(name)
        raise SpecError("problem", str(unknown), f"{unknown.remedy} Or name a problem's folder.")
    return ROOT / name


def lint(folder: Path) -> Report:
    """Examine every case of a problem. Raises SpecError for one that cannot be read or run."""
    try:
        problem = read_problem(folder)
        module = load_reference(folder / "reference.py")
        cases = tuple(examine(problem, case, module) for case in problem.cases)
    except CatalogError as error:
        raise SpecError("problem", str(error), "Mend the file.") from error
    except Exception as error:
        words = f"{folder / 'reference.py'}: {type(error).__name__}: {error}"
        raise SpecError("problem", words, "Mend the reference.") from error
    return Report(problem.slug, all(case.admissible for case in cases), cases)


@contextlib.contextmanager
def _blamed_on_reference() -> Iterator[None]:
    """Whatever a problem's own code raises is its fault, so it is caught broadly."""
    try:
        yield
    except Exception as error:
        words = f"its reference.py does not run: {type(error).__name__}: {error}."
        raise SpecError("problem", words, "Mend the reference.") from error


def examine(problem: Problem, case: Case, module: Any) -> CaseReport:
    small = shrunk(problem, case)
    generator = torch.Generator().manual_seed(SEED)
    sets = [_inputs(problem, small, generator) for _ in range(CHECKED_SETS + 1)]
    pairs = itertools.pairwise(sets)
    draws = [Drawn(problem, small, module, mine, others) for mine, others in pairs]
    degenerate = {**DEGENERATE, **_copies(problem)}
    kernels = [(name, kernel, False) for name, kernel in degenerate.items()]
    kernels += [(name, kernel, True) for name, kernel in {**HONEST, **_eager(module)}.items()]
    trials = (_try(small, name, kernel, honest, draws) for name, kernel, honest in kernels)
    tolerance = problem.tolerances[case.dtype]
    return CaseReport(
        case.name, case.scored, case.dtype, case.dims, small.dims, tolerance, tuple(trials)
    )


def shrunk(problem: Problem, case: Case) -> Case:
    """Halve one dimension after the other until all tensors together are small."""
    dims = dict(case.dims)
    order = [size for argument in problem.outputs for size in argument.shape]
    order = [name for name in dict.fromkeys((*order, *problem.dimension_names)) if name in dims]

    def elements() -> int:
        small = replace(case, dims=dims)
        return sum(math.prod(small.shape(each)) for each in problem.inputs + problem.outputs)

    for name in order:
        while elements() > ELEMENTS and dims[name] > SMALLEST:
            dims[name] = max(SMALLEST, dims[name] // 2)
    return replace(case, dims=dims)


def _inputs(problem: Problem, case: Case, generator: torch.Generator) -> Tensors:
    return tuple(
        draw(draw_name(case, each), case.shape(each), case.dtype_of(each), generator)
        for each in problem.inputs
    )


def _try(case: Case, name: str, kernel: Kernel, honest: bool, draws: list[Drawn]) -> Trial:
    """A degenerate kernel is accepted only if every draw accepts it, as in an evaluation.

    Where the answer itself is degenerate (a row of equal values, a single element) such a kernel is
    right, and no tolerance can refuse it. That is no fault of a case that is only checked, but a
    scored one would be won by computing nothing.
    """
    tolerance = draws[0].problem.tolerances[case.dtype]
    rounding = 2.0 ** -(MANTISSA_BITS[case.dtype] + 1) if case.dtype in MANTISSA_BITS else 0.0
    finest = Tolerance(rounding, rounding)
    found, exact = [], True
    for drawn in draws:
        outputs = _rounded(drawn, kernel(drawn))
        found.append(_judged(drawn.oracles, outputs, tolerance))
        close = _passes(found[-1])
        exact = exact and close and _passes(_judged(drawn.oracles, outputs, finest))
    refused = [each for each in found if not _passes(each)]
    accepted = not refused
    return Trial(
        kernel=name,
        honest=honest,
        accepted=accepted,
        exact=exact,
        as_it_should=accepted if honest else not accepted or (exact and not case.scored),
        max_rel_error=(refused or found)[0]["max_rel_error"],
        norm_error=(refused or found)[0]["norm_error"],
        reason=refused[0]["reason"] if refused else "",
    )


def _rounded(drawn: Drawn, outputs: Tensors) -> Tensors:
    wanted = [DTYPES[drawn.case.dtype_of(each)] for each in drawn.problem.outputs]
    return tuple(value.to(dtype) for value, dtype in zip(outputs, wanted, strict=True))


def _judged(answer: tuple[Oracle, ...], outputs: Tensors, tolerance: Tolerance) -> dict[str, Any]:
    pairs = zip(answer, outputs, strict=True)
    return summary([oracle.judge(output, tolerance) for oracle, output in pairs])


def _passes(judged: dict[str, Any]) -> bool:
    return judged["verdict"] is Verdict.passed


def _zeros(drawn: Drawn) -> Tensors:
    return tuple(torch.zeros_like(value) for value in drawn.answer)


def _ones(drawn: Drawn) -> Tensors:
    return tuple(torch.ones_like(value) for value in drawn.answer)


def _mean(drawn: Drawn) -> Tensors:
    """The constant of the least norm error."""
    return tuple(torch.full_like(value, _finite(value).mean().item()) for value in drawn.answer)


def _middle(drawn: Drawn) -> Tensors:
    """The constant of the least largest difference."""
    ends = [(_finite(value).min().item(), _finite(value).max().item()) for value in drawn.answer]
    pairs = zip(drawn.answer, ends, strict=True)
    return tuple(torch.full_like(value, (low + high) / 2) for value, (low, high) in pairs)


def _finite(value: torch.Tensor) -> torch.Tensor:
    finite = value.double()[torch.isfinite(value)]
    return finite if finite.numel() else torch.zeros(1, dtype=torch.float64)


def _uninitialised(drawn: Drawn) -> Tensors:
    """Memory as the evaluation poisons it."""
    case, cpu = drawn.case, torch.device("cpu")
    return tuple(
        poisoned(case.shape(each), case.dtype_of(each), cpu) for each in drawn.problem.outputs
    )


def _first_element(drawn: Drawn) -> Tensors:
    return tuple(value.flatten()[:1].expand(value.numel()).view_as(value) for value in drawn.answer)


def _first_row(drawn: Drawn) -> Tensors:
    return tuple((value[:1] if value.ndim else value).expand_as(value) for value in drawn.answer)


def _row_means(drawn: Drawn) -> Tensors:
    return tuple(value.mean(-1, keepdim=True).expand_as(value) for value in drawn.answer)


def _other_inputs(drawn: Drawn) -> Tensors:
    return drawn.answer_to(drawn.others)


def _coarse_result(drawn: Drawn) -> Tensors:
    bits = COARSER_BITS.get(drawn.case.dtype, 0)
    return tuple(_coarse(value, bits) for value in drawn.answer)


def _coarse_inputs(drawn: Drawn) -> Tensors:
    bits = COARSER_BITS.get(drawn.case.dtype, 0)
    return drawn.answer_to(tuple(_coarse(value, bits) for value in drawn.inputs))


def _coarse(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Rounded to `bits` of mantissa with any exponent: a downcast's harm without its overflow."""
    if not value.is_floating_point():
        return value
    mantissa, exponent = torch.frexp(value.double())
    rounded = torch.ldexp(torch.round(mantissa * 2.0 ** (bits + 1)), exponent - (bits + 1))
    return torch.where(torch.isfinite(value), rounded, value.double()).to(value.dtype)


def _copies(problem: Problem) -> dict[str, Kernel]:
    """For each input a kernel that returns it, repeated or cut to the output's size."""

    def copy_of(position: int) -> Kernel:
        def kernel(drawn: Drawn) -> Tensors:
            flat = drawn.inputs[position].flatten()
            sizes = [value.numel() for value in drawn.answer]
            repeated = [flat.repeat(size // flat.numel() + 1)[:size] for size in sizes]
            pairs = zip(repeated, drawn.answer, strict=True)
            return tuple(copy.view(value.shape) for copy, value in pairs)

        return kernel

    return {f"copy of {each.name}": copy_of(n) for n, each in enumerate(problem.inputs)}


def _eager(module: Any) -> dict[str, Kernel]:
    """The baselines that run anywhere: if they fail, an honest kernel has no chance."""

    def baseline(name: str) -> Kernel:
        def kernel(drawn: Drawn) -> Tensors:
            with _blamed_on_reference():
                result = module.BASELINES[name](*drawn.inputs)
            return result if isinstance(result, tuple) else (result,)

        return kernel

    return {f"baseline {name}": baseline(name) for name in offered(list(module.BASELINES), "host")}


Kernel = Callable[[Drawn], Tensors]
DEGENERATE: dict[str, Kernel] = {
    "zeros": _zeros,
    "ones": _ones,
    "best constant": _mean,
    "middle constant": _middle,
    "uninitialised": _uninitialised,
    "first element": _first_element,
    "first row": _first_row,
    "row means": _row_means,
    "other inputs": _other_inputs,
    "coarse result": _coarse_result,
    "coarse inputs": _coarse_inputs,
}
HONEST: dict[str, Kernel] = {"answer, rounded once": lambda drawn: drawn.answer}
