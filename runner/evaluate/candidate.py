"""The candidate's process: loads one candidate and runs it on command. It knows no expected value.

It is not trusted: what it says about shapes is compared by the parent, its clock against the
parent's clock, and its tensors are judged by the referee from shared memory.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

from runner.evaluate import malloc
from runner.evaluate.buffers import Layout, Mapped, Region
from runner.evaluate.channel import Channel, Message
from runner.evaluate.draws import DTYPES
from runner.wire import from_json

TRACEBACK_CHARACTERS = 4000
_clock = time.perf_counter_ns  # bound before a candidate can replace it


def warm() -> None:
    """What the zygote imports and touches before it forks; starts no thread, opens no device."""
    torch.set_num_threads(1)
    torch.softmax(torch.ones(2, 2), dim=-1)


def serve(channel: Channel) -> None:
    """Answer commands until the parent closes the channel."""
    malloc.keep_freed_memory()
    session: Session | None = None
    while (message := channel.receive()) is not None:
        try:
            if session is None:
                torch.set_num_threads(message["threads"])
                session = Session(message)
                reply: Message = {}
            else:
                reply = session.answer(message, channel.take_descriptors())
        except MissingSymbol as error:
            reply = {"failed": "missing_symbol", "text": str(error)}
        except (MemoryError, torch.OutOfMemoryError) as error:
            reply = {"failed": "memory", "text": f"{type(error).__name__}: {error}"}
        except Exception as error:
            reply = _failure(error)
        channel.send(reply)


class MissingSymbol(LookupError):
    """The shared object lacks the function that the problem asks for."""


class Session:
    """A loaded candidate and the case it is on."""

    def __init__(self, message: Message) -> None:
        load = load_shared_object if message["language"] == "cpp" else load_module
        self.bind = load(message["artifact"], message["symbols"])
        self.case: OpenCase | None = None

    def answer(self, message: Message, descriptors: list[int]) -> Message:
        command = message["do"]
        if command == "open":
            if self.case is not None:
                self.case.close()
            self.case = OpenCase(self.bind, message, descriptors[0])
            return {}
        assert self.case is not None
        if command == "run":
            return self.case.run(message["set"])
        if command == "publish":
            return self.case.publish(message["set"])
        raise ValueError(f"unknown command {command!r}")


Bind = Callable[[Mapped, Message, int], Callable[[], Any]]


class OpenCase:
    """One case: its tensors in shared memory and, per set, the call ready to be made."""

    def __init__(self, bind: Bind, message: Message, descriptor: int) -> None:
        layout = from_json(Layout, message["layout"])
        self.mapped = Mapped(descriptor, layout)
        os.close(descriptor)
        self.calls = [bind(self.mapped, message, number) for number in range(layout.sets)]
        self.returned: dict[int, Any] = {}

    def run(self, number: int) -> Message:
        """One timed call: the clock is read directly around it and nothing else."""
        call = self.calls[number]
        started = _clock()
        result = call()
        ended = _clock()
        self.returned = {number: result}
        return {"ns": ended - started}

    def publish(self, number: int) -> Message:
        """Copy what a Python candidate returned into shared memory; describes it either way."""
        result = self.returned.pop(number)
        if result is None:
            return {}
        outputs = [region for region in self.mapped.layout.of_set(number) if region.output]
        described = describe(result)
        if described == [expected(region) for region in outputs]:
            values = result if isinstance(result, tuple | list) else (result,)
            for region, value in zip(outputs, values, strict=True):
                tensor(self.mapped, region).copy_(value)
        return {"returned": described}

    def close(self) -> None:
        self.calls.clear()
        self.returned.clear()
        self.mapped.close()


def load_shared_object(path: str, symbols: dict[str, str]) -> Bind:
    library = ctypes.CDLL(path)
    for symbol, prototype in symbols.items():
        if not hasattr(library, symbol):
            raise MissingSymbol(f"the source does not export {prototype}")

    def bind(mapped: Mapped, message: Message, number: int) -> Callable[[], Any]:
        function = library[message["symbol"]]
        function.restype = None
        pointers = [
            ctypes.c_void_p(mapped.address(region)) for region in mapped.layout.of_set(number)
        ]
        sizes = [ctypes.c_int64(size) for size in message["sizes"]]
        arguments = (*pointers, *sizes)
        return lambda: function(*arguments)

    return bind


def load_module(path: str, symbols: dict[str, str]) -> Bind:
    specification = importlib.util.spec_from_file_location("candidate", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["candidate"] = module
    specification.loader.exec_module(module)
    function = getattr(module, "run", None)
    if not callable(function):
        raise MissingSymbol("the module defines no run(*inputs)")

    def bind(mapped: Mapped, message: Message, number: int) -> Callable[[], Any]:
        regions = mapped.layout.of_set(number)
        inputs = [tensor(mapped, region) for region in regions if not region.output]

        def call() -> Any:
            result = function(*inputs)
            return () if result is None else result

        return call

    return bind


def tensor(mapped: Mapped, region: Region) -> torch.Tensor:
    """The shared tensor itself, no copy."""
    if region.nbytes == 0:
        return torch.empty(region.shape, dtype=DTYPES[region.dtype])
    flat = torch.frombuffer(mapped.view(region), dtype=DTYPES[region.dtype])
    return flat.view(region.shape)


def describe(result: Any) -> list[list[Any]]:
    """Type, dtype, device and shape of each returned value, as plain JSON."""
    values = result if isinstance(result, tuple | list) else (result,)
    described: list[list[Any]] = []
    for value in values:
        if type(value) is torch.Tensor:
            dtype = str(value.dtype).removeprefix("torch.")
            described.append(["Tensor", dtype, str(value.device), list(value.shape)])
        else:
            described.append([type(value).__name__, "", "", []])
    return described


def expected(region: Region) -> list[Any]:
    dtype = str(DTYPES[region.dtype]).removeprefix("torch.")
    return ["Tensor", dtype, "cpu", list(region.shape)]


def _failure(error: Exception) -> Message:
    """The end of the traceback, from the candidate's own frames on."""
    text = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    return {"failed": "exception", "text": text, "summary": f"{type(error).__name__}: {error}"}
