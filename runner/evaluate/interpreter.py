"""Triton's interpreter, corrected, inside a candidate process on a machine without a GPU.

Owns the count of kernel launches and the refusal of launches too large to interpret. It is on only
where the environment says TRITON_INTERPRET=1; elsewhere every function here is a no-op.
"""

from __future__ import annotations

import os
from typing import Any

LIMIT_BYTES = 24 << 20  # of one set; a larger case would be interpreted for minutes
_state = {"launches": 0, "bytes": 0}


class TooLarge(RuntimeError):
    """A launch was refused: the case is too large for the interpreter."""


def active() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"


def warm() -> None:
    """Import triton, correct its interpreter, and count where every interpreted launch passes."""
    if not active():
        return
    from triton.runtime.interpreter import GridExecutor, _interpreter

    from runner.analysis.address_space import Plain
    from runner.analysis.interpreter_launch import install

    install(Plain(_interpreter), sampled=False)
    original = GridExecutor.__call__

    def counted(self: Any, *arguments: Any, **keywords: Any) -> Any:
        _state["launches"] += 1
        if _state["bytes"] > LIMIT_BYTES:
            raise TooLarge(f"a case of {_state['bytes'] >> 20} MiB is too large to interpret")
        return original(self, *arguments, **keywords)

    GridExecutor.__call__ = counted


def limit(case_bytes: int) -> None:
    _state["bytes"] = case_bytes


def launches() -> int:
    return _state["launches"]


def caused(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether `kind` is in the chain: the interpreter wraps what a kernel raises."""
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
