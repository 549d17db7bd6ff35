"""Draws the inputs of a simulation and judges its outputs, element by element.

Runs in forks of its own, in which no candidate code ever runs; what it knows of the inputs is the
seed, so that a candidate that changes them is found out. Draws, oracle and tolerances are those of
the evaluation.
"""

from __future__ import annotations

import numpy as np
import torch

from kernels.catalog import Case, Problem, Tolerance, load_problem
from runner.evaluate.buffers import Layout
from runner.evaluate.channel import Message
from runner.evaluate.draws import draw, draw_name
from runner.evaluate.host_memory import HostMemory
from runner.evaluate.judge import Oracle
from runner.evaluate.referee import load_reference, oracles
from runner.evaluate.tensors import BITS, same_bits, shared_tensor
from runner.results import Verdict
from runner.wire import from_json

SHOWN = 4  # wrong elements that are named


def fill(message: Message, descriptors: list[int]) -> Message:
    """Draw the inputs into shared memory."""
    layout = from_json(Layout, message["layout"])
    shared = HostMemory(descriptors[0], layout)
    problem, case = _contract(message)
    regions = [region for region in layout.regions if not region.output]
    for region, values in zip(regions, _inputs(problem, case, message["seed"]), strict=True):
        shared_tensor(shared, region).copy_(values)
    return {}


def judge(message: Message, descriptors: list[int]) -> Message:
    """Compare every output with the oracle, and the inputs with what was drawn.

    Where only a sample of programs was run, elements that nobody wrote are not judged.
    """
    layout = from_json(Layout, message["layout"])
    shared = HostMemory(descriptors[0], layout)
    problem, case = _contract(message)
    inputs = _inputs(problem, case, message["seed"])
    regions = [region for region in layout.regions if not region.output]
    changed = [
        region.name
        for region, values in zip(regions, inputs, strict=True)
        if not same_bits(shared_tensor(shared, region), values)
    ]
    truths = oracles(load_reference(problem.reference_path), problem, case, inputs)
    tolerance = problem.tolerances[case.dtype]
    outputs = [shared_tensor(shared, region) for region in layout.regions if region.output]
    answers = [
        _judged(oracle, output.clone(), tolerance, message["sampled"])
        for oracle, output in zip(truths, outputs, strict=True)
    ]
    return {"changed": changed, "outputs": answers}


def _contract(message: Message) -> tuple[Problem, Case]:
    problem = load_problem(message["problem"])
    return problem, next(case for case in problem.cases if case.name == message["case"])


def _inputs(problem: Problem, case: Case, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [
        draw(draw_name(case, each), case.shape(each), case.dtype_of(each), generator)
        for each in problem.inputs
    ]


def _judged(oracle: Oracle, output: torch.Tensor, tolerance: Tolerance, sampled: bool) -> Message:
    """`wrong` counts elements beyond the tolerance, `worst` names the first and largest few."""
    unwritten = _unwritten(output)
    if sampled:
        output = torch.where(unwritten, oracle.values.to(output.dtype), output)
        unwritten = torch.zeros_like(unwritten)
    judgement = oracle.judge(output, tolerance)
    if judgement.verdict is Verdict.passed:
        return {"name": oracle.name, "reason": "", "wrong": 0, "unwritten": 0, "worst": []}
    error = _errors(oracle, output)
    wrong = (error > tolerance.element) & ~unwritten
    first = torch.nonzero(wrong.flatten())[: SHOWN - 1, 0].tolist()
    largest = int(torch.where(unwritten, 0.0, error).argmax())
    places = dict.fromkeys([*first, *([largest] if not unwritten.flatten()[largest] else [])])
    return {
        "name": oracle.name,
        "reason": judgement.reason,
        "wrong": int(wrong.sum()),
        "unwritten": int(unwritten.sum()),
        "worst": [_element(oracle, output, place) for place in places],
    }


def _unwritten(output: torch.Tensor) -> torch.Tensor:
    """Elements that hold the poison pattern; a legal −1 of an integer output looks like it."""
    if not output.dtype.is_floating_point:
        return torch.zeros(output.shape, dtype=torch.bool)
    return output.view(BITS[output.element_size()]) == -1


def _errors(oracle: Oracle, output: torch.Tensor) -> torch.Tensor:
    """|out − ref| / (|ref| + rms), infinite where exactly one of them is finite or not."""
    expected, got = oracle.values.double(), output.double()
    finite = torch.isfinite(expected) & torch.isfinite(got)
    error = torch.where(finite, got - expected, 0.0).abs() / oracle.scale.clamp_min(1e-300)
    same = (got == expected) | (torch.isnan(got) & torch.isnan(expected))
    return torch.where(finite | same, error, torch.inf)


def _element(oracle: Oracle, output: torch.Tensor, place: int) -> Message:
    index = [int(i) for i in np.unravel_index(place, tuple(output.shape))]
    expected = float(oracle.values.flatten()[place])
    got = float(output.flatten()[place])
    return {"place": place, "index": index, "got": f"{got:.6g}", "expected": f"{expected:.6g}"}
