"""The slow, obvious truth of matmul, and the torch kernel that candidates are timed against."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def reference(A: Tensor, B: Tensor) -> Tensor:
    """A [M, K], B [K, N] in float64 → C [M, N]."""
    return A @ B


def eager(A: Tensor, B: Tensor, *, out: Tensor | None = None) -> Tensor:
    """cuBLAS on a GPU, MKL or OpenBLAS on the host; Inductor calls the same, so it is no second
    baseline. `out` takes the result: faulting in fresh pages would make the baseline look slow.
    """
    return torch.mm(A, B, out=out)


BASELINES: dict[str, Callable[..., Tensor]] = {"torch": eager}
