"""Compares one output tensor with its float64 oracle. Owns the error measures and their words.

The measures are those of `kernels.catalog.Tolerance`. It decides nothing about timing or processes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from kernels.catalog import Tolerance
from runner.evaluate.tensors import BITS
from runner.results import Verdict


@dataclass(frozen=True)
class Judgement:
    """How one output compares. An error is None where nothing finite could be compared."""

    verdict: Verdict
    reason: str
    max_rel_error: float | None
    norm_error: float | None


class Oracle:
    """The float64 reference of one output, with what every comparison with it needs.

    What the output's `dtype` cannot hold counts as ±inf. `values` keeps its non-finite elements;
    the measures see them as 0, and so the same elements of an output, once their positions have
    been found equal.
    """

    def __init__(self, name: str, values: torch.Tensor, dtype: torch.dtype) -> None:
        if dtype.is_floating_point:
            rounded = values.to(dtype)
            values = torch.where(torch.isinf(rounded), rounded.double(), values)
        self.name, self.values = name, values
        finite = torch.isfinite(values)
        self.all_finite = bool(finite.all())
        self.finite_values = values if self.all_finite else torch.where(finite, values, 0.0)
        self.norm = float(self.finite_values.norm())
        rms = self.norm / math.sqrt(max(1, values.numel()))
        self.scale = self.finite_values.abs().add_(rms)

    def judge(self, output: torch.Tensor, tolerance: Tolerance) -> Judgement:
        """Most outputs pass the first look; the others are looked at for what is wrong."""
        measured = self._measure(output.double(), tolerance)
        if measured.verdict is Verdict.passed and self.all_finite:
            return measured  # the poison is NaN, and NaN never passes
        if unwritten := _unwritten(output):
            reason = f"{unwritten} of {output.numel()} elements of {self.name} were never written"
            return Judgement(Verdict.wrong_values, reason, None, None)
        if (where := self._first_mismatch(output)) is not None:
            reason = f"{self.name}[{_index(where)}] is {self._pair(output, where)}"
            return Judgement(Verdict.non_finite, reason, None, None)
        if bool(torch.isfinite(output).all()):
            return measured
        return self._measure(torch.where(torch.isfinite(output), output.double(), 0.0), tolerance)

    def _measure(self, output: torch.Tensor, tolerance: Tolerance) -> Judgement:
        if not output.numel():
            return Judgement(Verdict.passed, "", 0.0, 0.0)
        difference = output - self.finite_values
        norm_error = _ratio(float(difference.norm()), self.norm)
        relative = difference.abs_().div_(self.scale)
        element_error = float(relative.max())
        if math.isnan(element_error) and not (self.scale == 0).any():
            return Judgement(Verdict.non_finite, f"{self.name} holds NaN", None, None)
        if math.isnan(element_error):  # 0 / 0: reference and output are both all zero there
            element_error = float(relative.nan_to_num_(nan=0.0, posinf=math.inf).max())
        reason = ""
        if element_error > tolerance.element:
            where = _unravel(int(relative.argmax()), tuple(output.shape))
            reason = (
                f"element error {element_error:.3g} at {self.name}[{_index(where)}]"
                f" ({self._pair(output, where)}), allowed {tolerance.element:g}"
            )
        elif norm_error > tolerance.norm:
            reason = f"norm error {norm_error:.3g} of {self.name}, allowed {tolerance.norm:g}"
        verdict = Verdict.wrong_values if reason else Verdict.passed
        return Judgement(verdict, reason, _finite(element_error), _finite(norm_error))

    def _first_mismatch(self, output: torch.Tensor) -> tuple[int, ...] | None:
        """The first place where non-finite values differ between output and reference."""
        if not output.dtype.is_floating_point:
            return None
        expected = self.values.to(output.dtype)
        same = (output == expected) | (torch.isfinite(output) & torch.isfinite(expected))
        wrong = ~(same | (torch.isnan(output) & torch.isnan(expected)))
        if not bool(wrong.any()):
            return None
        return _unravel(int(wrong.flatten().int().argmax()), tuple(output.shape))

    def _pair(self, output: torch.Tensor, where: tuple[int, ...]) -> str:
        return f"{float(output[where]):.6g}, expected {float(self.values[where]):.6g}"


def _unwritten(output: torch.Tensor) -> int:
    """Elements that still hold the poison pattern; an honest result never has these exact bits."""
    if not output.dtype.is_floating_point:
        return 0  # all ones is the legal integer −1
    return int((output.view(BITS[output.element_size()]) == -1).sum())


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
