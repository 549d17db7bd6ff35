"""Random tensors: what each name in `kernels.catalog.DRAWS` means. Knows no problem, no kernel."""

from __future__ import annotations

from collections.abc import Callable

import torch

DTYPES = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "int64": torch.int64,
}
WIDE_EXPONENT = 20


def draw(name: str, shape: tuple[int, ...], dtype: str, generator: torch.Generator) -> torch.Tensor:
    """A fresh tensor on the generator's device. Raises LookupError for an unknown draw."""
    values = _DRAWS[name](shape, generator)
    return values.to(DTYPES[dtype])


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, device=generator.device)


def _uniform(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, device=generator.device)


def _wide(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """sign · 2^u with u uniform in (−20, 20): magnitudes over twelve decimal orders."""
    exponent = (2 * _uniform(shape, generator) - 1) * WIDE_EXPONENT
    sign = torch.where(_uniform(shape, generator) < 0.5, -1.0, 1.0)
    return sign * torch.exp2(exponent)


_DRAWS: dict[str, Callable[[tuple[int, ...], torch.Generator], torch.Tensor]] = {
    "normal": _normal,
    "uniform": _uniform,
    "wide": _wide,
}
