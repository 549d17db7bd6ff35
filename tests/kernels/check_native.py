"""Child process: holds shared objects of one problem against its reference, one JSON line each.

    python -m tests.kernels.check_native SLUG CASE_SET LIBRARY…

Each case runs twice, on buffers aligned to a cache line and on buffers one element off, with guards
before and after the output. A crash of native code ends this process and nobody else's.
"""

from __future__ import annotations

import ctypes
import json
import sys

import torch

from kernels.catalog import Case, Problem, load_problem
from runner.evaluate.draws import DTYPES, draw
from runner.evaluate.judge import Oracle
from tests.kernels.references import reference_of

GUARD = 64
MARK = 12345.0


def placed(values: torch.Tensor, shift: int) -> torch.Tensor:
    """A copy that starts `shift` elements after a cache line, with guards on both sides."""
    room = torch.full((values.numel() + 2 * GUARD + 16,), MARK)
    start = GUARD + shift - room.data_ptr() % 64 // 4 % 16
    view = room[start : start + values.numel()].view(values.shape)
    view.copy_(values)
    return view


def guards_hold(view: torch.Tensor) -> bool:
    room = view._base
    assert room is not None
    start, end = view.storage_offset(), view.storage_offset() + view.numel()
    return bool((room[:start] == MARK).all() and (room[end:] == MARK).all())


def call(problem: Problem, library: ctypes.CDLL, case: Case, tensors: list[torch.Tensor]) -> None:
    function = getattr(library, problem.cpp_symbol(case.dtype))
    function.restype = None
    pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
    function(*pointers, *[ctypes.c_int64(case.dims[name]) for name in problem.dimension_names])


def check_case(problem: Problem, libraries: dict[str, ctypes.CDLL], case: Case, seed: int) -> None:
    """Prints what is wrong, nothing where the kernel is right, per library and placement."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [
        draw(case.draws.get(a.name, a.draw), case.shape(a), case.dtype_of(a), generator)
        for a in problem.inputs
    ]
    wanted = reference_of(problem)(*[tensor.double() for tensor in drawn])
    oracle = Oracle("y", wanted, DTYPES[case.dtype])
    blank = torch.full(case.shape(problem.outputs[0]), float("nan"))
    for shift in (0, 1):
        tensors = [*[placed(values, shift) for values in drawn], placed(blank, shift)]
        for path, library in libraries.items():
            tensors[-1].copy_(blank)
            call(problem, library, case, tensors)
            wrong = oracle.judge(tensors[-1], problem.tolerances[case.dtype]).reason
            if not all(guards_hold(tensor) for tensor in tensors):
                wrong = "wrote outside its output"
            if not all(torch.equal(a, b) for a, b in zip(tensors, drawn, strict=False)):
                wrong = "changed an input"
            print(json.dumps([path, case.name, shift, wrong]), flush=True)


def main(slug: str, case_set: str, paths: list[str]) -> None:
    problem = load_problem(slug)
    libraries = {path: ctypes.CDLL(path) for path in paths}
    for seed, case in enumerate(problem.cases_in(case_set)):
        check_case(problem, libraries, case, seed)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
