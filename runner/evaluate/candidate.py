"""The candidate's process: loads one candidate, which `timed` runs on command.

It is not trusted and knows no expected value.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
from typing import Any

from runner.evaluate import interpreter, timed
from runner.evaluate.channel import Channel, Message
from runner.evaluate.clocks import Clock
from runner.evaluate.modules import module_at
from runner.evaluate.tensors import warm_torch
from runner.evaluate.timed import Call, MissingSymbol, OpenCase


def warm() -> None:
    """What the zygote imports and touches before it forks; starts no thread, opens no device."""
    warm_torch()
    interpreter.warm()
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")


def serve(channel: Channel) -> None:
    timed.serve(channel, load)


def load(message: Message, clock: Clock) -> tuple[SharedObject | Module, Message]:
    if message["language"] == "cpp":
        return SharedObject(message["artifact"], message["symbols"]), {}
    return Module(message["artifact"]), {}


class SharedObject:
    """A compiled C++ candidate: called with the addresses of the shared tensors."""

    def __init__(self, path: str, symbols: dict[str, str]) -> None:
        self.library = ctypes.CDLL(path)
        for symbol, prototype in symbols.items():
            if not hasattr(self.library, symbol):
                raise MissingSymbol(f"the source does not export {prototype}")

    def bind(self, case: OpenCase, name: str, number: int) -> Call:
        function = self.library[case.symbol]
        function.restype = None
        regions = case.layout.of_set(number)
        pointers = [ctypes.c_void_p(case.memory.address(region)) for region in regions]
        sizes = [ctypes.c_int64(size) for size in case.sizes]
        arguments = (*pointers, *sizes)
        return lambda: function(*arguments)


class Module:
    """A Python candidate: `run(*inputs)` returns a tensor or a tuple of tensors."""

    def __init__(self, path: str) -> None:
        self.run = getattr(module_at(path), "run", None)
        if not callable(self.run):
            raise MissingSymbol("the module defines no run(*inputs)")

    def bind(self, case: OpenCase, name: str, number: int) -> Call:
        run, inputs = self.run, case.inputs(number)

        def call() -> Any:
            result = run(*inputs)  # type: ignore[misc]
            return () if result is None else result

        return call
