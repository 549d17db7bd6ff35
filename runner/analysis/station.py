"""The zygote that analyses candidates: Triton imported, confined like a candidate's."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from runner.evaluate import keeper

KIND = keeper.Kind("analyst")
# Pools of numpy, OpenMP and MKL would start threads before the fork.
ENVIRONMENT = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "MKL", "OPENBLAS")}
ENVIRONMENT["CUDA_VISIBLE_DEVICES"] = ""


class Unavailable(RuntimeError):
    """Torch, Triton or the sandbox did not start; the message has their words."""


@contextlib.contextmanager
def borrowed(cancel: threading.Event | None = None) -> Iterator[keeper.Zygote]:
    """Ours alone for the time; started lazily, replaced when it has died. Raises Unavailable."""
    try:
        with keeper.borrowed(KIND, ENVIRONMENT, cancel) as zygote:
            yield zygote
    except keeper.Stillborn as died:
        raise Unavailable(f"the analysis cannot start: {died}") from died


def stop() -> None:
    """End it; the next analysis starts a new one."""
    keeper.stop_all()
