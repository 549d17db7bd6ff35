"""The slow, obvious truth of vector_add, and the torch kernels that time is compared with."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def reference(a: Tensor, b: Tensor) -> Tensor:
    """a, b [N] in float64 → c [N]."""
    return a + b


def eager(a: Tensor, b: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`out` takes the result: faulting in fresh pages would make the baseline look slow."""
    return torch.add(a, b, out=out)


@functools.cache
def _compile() -> Callable[..., Any]:
    return torch.compile(eager, dynamic=False)


def compiled(a: Tensor, b: Tensor) -> Tensor:
    """The same through Inductor; compiled at its first call, once per shape."""
    return _compile()(a, b)


BASELINES: dict[str, Callable[..., Tensor]] = {"torch": eager, "torch.compile": compiled}
