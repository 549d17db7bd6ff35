"""Child process: runs a Triton zoo kernel on CPU tensors, in the interpreter of an evaluation.

    TRITON_INTERPRET=1 python -m tests.kernels.check_simulated SLUG CONSTANTS [DIMS DTYPE DRAW]…

CONSTANTS and DIMS are JSON objects; it prints one JSON line per point, with what is wrong there.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import torch

from kernels.catalog import Case, Problem, Tolerance, load_problem
from runner.evaluate import interpreter
from runner.evaluate.draws import DTYPES, draw
from runner.evaluate.judge import Oracle
from runner.evaluate.modules import module_at
from runner.languages import triton as language
from tests.kernels.references import reference_of


def module_with(source: str, folder: Path) -> ModuleType:
    path = folder / "candidate.py"
    path.write_text(source, encoding="utf-8")
    return module_at(path)


def tolerance_for(problem: Problem, dtype: str) -> Tolerance:
    return problem.tolerances[dtype if dtype in problem.tolerances else "bf16"]


def check(problem: Problem, module: ModuleType, case: Case, how: str) -> str:
    generator = torch.Generator().manual_seed(0)
    inputs = [draw(how, case.shape(a), case.dtype, generator).contiguous() for a in problem.inputs]
    output = module.run(*inputs)
    if output.dtype is not DTYPES[case.dtype]:
        return f"returned {output.dtype}"
    wanted = reference_of(problem)(*[tensor.double() for tensor in inputs])
    oracle = Oracle("y", wanted, DTYPES[case.dtype])
    return oracle.judge(output, tolerance_for(problem, case.dtype)).reason


def main(slug: str, constants: str, *rest: str) -> None:
    problem = load_problem(slug)
    (kernel,) = problem.kernels("triton")
    interpreter.warm()
    source = language.set_constants(kernel.source, json.loads(constants))
    with tempfile.TemporaryDirectory() as folder:
        module = module_with(source, Path(folder))
        for dims, dtype, how in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
            case = Case("", (), dtype, json.loads(dims), True, 0, 0, {}, "")
            print(json.dumps([dims, dtype, how, check(problem, module, case, how)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
