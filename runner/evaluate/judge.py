"""Compares one output tensor with its float64 oracle. Owns the error measures and their words.

The measures are those of `kernels.catalog.Tolerance`. It decides nothing about timing or processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.catalog import Tolerance
from runner.results import Verdict

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Judgement:
    """How one output compares. Errors are None where nothing finite could be compared."""

    verdict: Verdict
    reason: str
    max_rel_error: float | None
    norm_error: float | None


def compare(
    name: str, output: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> Judgement:
    """`reference` is float64 of the same shape; what the output's dtype cannot hold is ±inf."""
    if unwritten := _unwritten(output):
        reason = f"{unwritten} of {output.numel()} elements of {name} were never written"
        return Judgement(Verdict.wrong_values, reason, None, None)
    if (where := _first_mismatch(output, reference)) is not None:
        expected = f"{float(reference[where]):.6g}"
        reason = f"{name}[{_index(where)}] is {float(output[where]):.6g}, expected {expected}"
        return Judgement(Verdict.non_finite, reason, None, None)
    return _measure(name, output.double(), reference, tolerance)


def _measure(
    name: str, output: torch.Tensor, reference: torch.Tensor, tolerance: Tolerance
) -> Judgement:
    finite = torch.isfinite(output) & torch.isfinite(reference)
    if not bool(finite.all()):
        output = torch.where(finite, output, 0.0)
        reference = torch.where(finite, reference, 0.0)
    norm = float(reference.norm())
    rms = norm / math.sqrt(max(1, reference.numel()))
    difference = (output - reference).abs_()
    norm_error = _ratio(float(difference.norm()), norm)
    relative = difference.div_(reference.abs().add_(rms)).nan_to_num_(nan=0.0, posinf=math.inf)
    worst = int(relative.argmax()) if relative.numel() else 0
    element_error = float(relative.flatten()[worst]) if relative.numel() else 0.0
    where = _unravel(worst, tuple(output.shape))
    reason = ""
    if element_error > tolerance.element:
        reason = (
            f"element error {element_error:.3g} at {name}[{_index(where)}]"
            f" ({float(output[where]):.6g}, expected {float(reference[where]):.6g}),"
            f" allowed {tolerance.element:g}"
        )
    elif norm_error > tolerance.norm:
        reason = f"norm error {norm_error:.3g} of {name}, allowed {tolerance.norm:g}"
    verdict = Verdict.wrong_values if reason else Verdict.passed
    return Judgement(verdict, reason, _finite(element_error), _finite(norm_error))


def _unwritten(output: torch.Tensor) -> int:
    """Elements that still hold the poison pattern; an honest result never has these exact bits."""
    if not output.dtype.is_floating_point:
        return 0  # all ones is the legal integer −1
    return int((output.view(BITS[output.element_size()]) == -1).sum())


def _first_mismatch(output: torch.Tensor, reference: torch.Tensor) -> tuple[int, ...] | None:
    """The first place where non-finite values differ between output and reference."""
    if not output.dtype.is_floating_point:
        return None
    if bool(torch.isfinite(output).all()) and bool(torch.isfinite(reference).all()):
        return None
    expected = reference.to(output.dtype)
    same = (output == expected) | (torch.isfinite(output) & torch.isfinite(expected))
    wrong = ~(same | (torch.isnan(output) & torch.isnan(expected)))
    if not bool(wrong.any()):
        return None
    return _unravel(int(wrong.flatten().int().argmax()), tuple(output.shape))


def _unravel(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index: list[int] = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))


def _index(where: tuple[int, ...]) -> str:
    return ", ".join(map(str, where))


def _ratio(error: float, norm: float) -> float:
    if norm == 0:
        return 0.0 if error == 0 else math.inf
    return error / norm


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
