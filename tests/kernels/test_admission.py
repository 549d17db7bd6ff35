"""A problem is admissible only if kernels that do not compute it fail its tolerance.

Scored cases are shrunk to half a million elements first: what fails is the contract, not a size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from kernels.catalog import Case, Problem, load_all
from runner.evaluate.draws import DTYPES, draw
from runner.evaluate.judge import Oracle
from runner.results import Verdict
from tests.kernels.references import module_of, reference_of

ELEMENTS = 2**19
Inputs = list[torch.Tensor]


def shrunk(problem: Problem, case: Case) -> Case:
    """Halve the first dimension that still can be, until all tensors together are small."""
    dims = dict(case.dims)

    def elements() -> int:
        small = replace(case, dims=dims)
        tensors = problem.inputs + problem.outputs
        return sum(torch.Size(small.shape(argument)).numel() for argument in tensors)

    while elements() > ELEMENTS:
        name = next(name for name in problem.dimension_names if dims[name] > 8)
        dims[name] //= 2
    return replace(case, dims=dims)


def drawn(problem: Problem, case: Case, seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    return [
        draw(case.draws.get(a.name, a.draw), case.shape(a), case.dtype_of(a), generator)
        for a in problem.inputs
    ]


def expected(problem: Problem, inputs: Inputs) -> torch.Tensor:
    return reference_of(problem)(*[tensor.double() for tensor in inputs])


def first_input(problem: Problem, case: Case) -> torch.Tensor:
    """An input as it stands, repeated or cut to the output's size."""
    size = torch.Size(case.shape(problem.outputs[0]))
    flat = drawn(problem, case, 0)[0].flatten()
    return flat.repeat(size.numel() // flat.numel() + 1)[: size.numel()].view(size)


def coarser(problem: Problem, case: Case) -> torch.Tensor:
    """The right formula on inputs rounded to a dtype of fewer bits than the contract's."""
    dtype = torch.bfloat16 if case.dtype == "fp32" else torch.float8_e4m3fn
    return expected(problem, [x.to(dtype).float() for x in drawn(problem, case, 0)])


def uninitialised(problem: Problem, case: Case) -> torch.Tensor:
    """Memory as the harness poisons it: all bits set."""
    output = torch.empty(case.shape(problem.outputs[0]), dtype=DTYPES[case.dtype])
    output.view(torch.uint8).fill_(255)
    return output


DEGENERATE: dict[str, Callable[[Problem, Case], torch.Tensor]] = {
    "zeros": lambda p, c: torch.zeros(c.shape(p.outputs[0])),
    "ones": lambda p, c: torch.ones(c.shape(p.outputs[0])),
    "the best constant": lambda p, c: torch.full_like(
        y := expected(p, drawn(p, c, 0)), float(y.mean())
    ),
    "its input": first_input,
    "uninitialised memory": uninitialised,
    "the answer to other inputs": lambda p, c: expected(p, drawn(p, c, 1)),
    "a downcast result": coarser,
}


def judge(problem: Problem, case: Case, output: torch.Tensor) -> Verdict:
    oracle = Oracle("y", expected(problem, drawn(problem, case, 0)), DTYPES[case.dtype])
    return oracle.judge(output.to(DTYPES[case.dtype]), problem.tolerances[case.dtype]).verdict


def scored_cases() -> list[object]:
    return [
        pytest.param(problem, shrunk(problem, case), id=f"{problem.slug}-{case.name}")
        for problem in load_all()
        for case in problem.cases
        if case.scored
    ]


@pytest.mark.parametrize(("problem", "case"), scored_cases())
def test_kernels_that_do_not_compute_fail_every_scored_case(problem: Problem, case: Case) -> None:
    accepted = [
        name
        for name, kernel in DEGENERATE.items()
        if judge(problem, case, kernel(problem, case)) is Verdict.passed
    ]
    assert accepted == []


@pytest.mark.parametrize(("problem", "case"), scored_cases())
def test_the_reference_rounded_once_passes_every_scored_case(problem: Problem, case: Case) -> None:
    assert judge(problem, case, expected(problem, drawn(problem, case, 0))) is Verdict.passed


@pytest.mark.parametrize("problem", load_all(), ids=lambda problem: problem.slug)
def test_the_eager_baseline_passes_every_small_case(problem: Problem) -> None:
    baseline = module_of(problem.reference_path).BASELINES["torch"]
    for case in (shrunk(problem, case) for case in problem.cases):
        output = baseline(*drawn(problem, case, 0))
        assert output.dtype is DTYPES[case.dtype]
        assert judge(problem, case, output) is Verdict.passed, case.name
