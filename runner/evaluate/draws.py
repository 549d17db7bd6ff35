"""Random tensors: what each name in `kernels.catalog.DRAWS` means. Knows no kernel."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from kernels.catalog import Argument, Case
from runner.evaluate.tensors import DTYPES

INDEPENDENT = frozenset({"normal", "uniform", "wide", "tiny"})  # any permutation is as likely
WIDE_EXPONENT = 20
Shape = tuple[int, ...]


def draw_name(case: Case, argument: Argument) -> str:
    """How an input varies: as its contract says, unless the case says otherwise."""
    return case.draws.get(argument.name, argument.draw)


def draw(name: str, shape: Shape, dtype: str, generator: torch.Generator) -> torch.Tensor:
    """A fresh tensor on the generator's device. Raises KeyError for an unknown draw.

    Values are rounded once, to the dtype. Normal values of at most fp32 are drawn in fp32 directly,
    which is four times as fast and loses nothing that the dtype could hold.
    """
    return _DRAWS[name](shape, DTYPES[dtype], generator).to(DTYPES[dtype])


def _normal(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _uniform(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    return _double(torch.rand, shape, generator)


def _wide(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    exponent = (2 * _double(torch.rand, shape, generator) - 1) * WIDE_EXPONENT
    sign = torch.where(_double(torch.rand, shape, generator) < 0.5, -1.0, 1.0)
    return sign * torch.exp2(exponent)


def _tiny(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """In float64, where the product is exact enough: it is subnormal only after rounding."""
    return _double(torch.randn, shape, generator) * torch.finfo(dtype).smallest_normal


def _equal(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    row = torch.randn((*shape[:-1], 1), generator=generator, device=generator.device)
    return row.expand(shape)


def _masked(shape: Shape, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    values = _normal(shape, dtype, generator)
    length = shape[-1]
    rows = (math.prod(shape[:-1]), 1)
    start = (_double(torch.rand, rows, generator) * length).long().clamp_(max=length - 1)
    span = (_double(torch.rand, rows, generator) * (length - start)).long()
    end = torch.minimum(start + 1 + span, torch.full_like(start, length))
    column = torch.arange(length, device=generator.device)
    holes = torch.rand((rows[0], length), generator=generator, device=generator.device) < 0.5
    fourth = torch.arange(rows[0], device=generator.device).unsqueeze(1) % 4 == 3
    inside = (column >= start) & (column < end) & ~(fourth & holes & (column != start))
    return values.masked_fill(~inside.view(shape), -math.inf)


def _double(
    source: Callable[..., torch.Tensor], shape: Shape, generator: torch.Generator
) -> torch.Tensor:
    return source(shape, generator=generator, device=generator.device, dtype=torch.float64)


_DRAWS: dict[str, Callable[[Shape, torch.dtype, torch.Generator], torch.Tensor]] = {
    "normal": _normal,
    "uniform": _uniform,
    "wide": _wide,
    "tiny": _tiny,
    "equal": _equal,
    "masked": _masked,
}
