"""The slow, obvious truth of softmax, and the torch kernels that candidates are timed against."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def reference(x: Tensor) -> Tensor:
    """x [M, N] in float64 → y [M, N]: each row sums to 1."""
    exponentials = torch.exp(x - x.amax(dim=1, keepdim=True))
    return exponentials / exponentials.sum(dim=1, keepdim=True)


def eager(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`out` takes the result: faulting in fresh pages would make the baseline look slow."""
    return torch.softmax(x, dim=1, out=out)


@functools.cache
def _compile() -> Callable[..., Any]:
    return torch.compile(eager, dynamic=False)


def compiled(x: Tensor) -> Tensor:
    """The same through Inductor; compiled at its first call, once per shape."""
    return _compile()(x)


BASELINES: dict[str, Callable[..., Tensor]] = {"torch": eager, "torch.compile": compiled}
