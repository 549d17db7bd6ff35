"""What candidates are timed against returns what the contract asks of a candidate.

That kernels which compute nothing fail every problem is examined by `runner.lint` and its tests.
"""

from __future__ import annotations

import pytest
import torch

from kernels.catalog import Problem, load_all
from runner.evaluate.draws import draw, draw_name
from runner.evaluate.tensors import DTYPES
from runner.lint import shrunk
from tests.kernels.references import module_of


@pytest.mark.parametrize("problem", load_all(), ids=lambda problem: problem.slug)
def test_the_eager_baseline_returns_the_dtype_and_shape_of_the_contract(problem: Problem) -> None:
    baseline = module_of(problem.reference_path).BASELINES["torch"]
    generator = torch.Generator().manual_seed(0)
    for case in (shrunk(problem, case) for case in problem.cases):
        inputs = [
            draw(draw_name(case, each), case.shape(each), case.dtype_of(each), generator)
            for each in problem.inputs
        ]
        output = baseline(*inputs)
        wanted = problem.outputs[0]
        assert output.dtype is DTYPES[case.dtype_of(wanted)], case.name
        assert tuple(output.shape) == case.shape(wanted), case.name
