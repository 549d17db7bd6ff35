"""The candidate's process: loads one candidate and runs it on command. It knows no expected value.

It is not trusted: what it says about shapes is compared by the parent, its clock against the
parent's clock, and its tensors are judged by the referee from shared memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch

from runner.evaluate import interpreter, malloc
from runner.evaluate.buffers import Layout, Mapped, Region
from runner.evaluate.channel import Channel, Message
from runner.evaluate.clocks import Clock, clock_for
from runner.evaluate.tensors import DTYPES, approach, deliver, poisoned, shared_tensor
from runner.wire import from_json

TRACEBACK_CHARACTERS = 4000
MODULE_FILE = "candidate.py"
_libc = ctypes.CDLL(None)
Call = Callable[[], Any]


class MissingSymbol(LookupError):
    """The candidate lacks the function that the problem asks for."""


def warm() -> None:
    """What the zygote imports and touches before it forks; starts no thread, opens no device."""
    torch.set_num_threads(1)
    torch.softmax(torch.ones(2, 2), dim=-1)
    interpreter.warm()
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        with contextlib.suppress(ImportError):
            importlib.import_module("triton")


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
        reply["nonce"] = message["nonce"]
        flush()
        channel.send(reply)


def flush() -> None:
    """What a candidate printed must reach the parent even if it is killed next."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    _libc.fflush(None)


def _failure(error: Exception) -> Message:
    """The summary names the candidate's own line; the whole traceback goes to its output."""
    if interpreter.caused(error, interpreter.TooLarge):
        return {"failed": "too_large", "text": str(error)}
    if interpreter.caused(error, MemoryError) or "can't allocate memory" in str(error):
        return {"failed": "memory", "text": f"{type(error).__name__}: {error}"}
    text = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
    sys.stderr.write(text)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if os.path.basename(frame.filename) == MODULE_FILE]
    own = [frame for frame in own if os.path.dirname(frame.filename) == os.getcwd()]
    where = f" ({MODULE_FILE}:{own[-1].lineno} in {own[-1].name})" if own else ""
    return {"failed": "exception", "text": f"{type(error).__name__}: {error}{where}"[:2000]}


class Session:
    """A loaded candidate and the case it is on."""

    def __init__(self, message: Message) -> None:
        self.clock = clock_for(message["kind"])
        self.program: SharedObject | Module
        if message["language"] == "cpp":
            self.program = SharedObject(message["artifact"], message["symbols"])
        else:
            self.program = Module(message["artifact"])
        self.case: OpenCase | None = None

    def answer(self, message: Message, descriptors: list[int]) -> Message:
        command = message["do"]
        if command == "open":
            if self.case is not None:
                self.case.close()
            self.case = OpenCase(self.program, self.clock, message, descriptors[0])
            return {}
        assert self.case is not None
        if command == "run":
            reply = self.case.run(message["set"], dirty=message["dirty"])
            return {**reply, **self.case.publish(message["set"])} if message["publish"] else reply
        if command == "publish":
            return self.case.publish(message["set"])
        if command == "roll":
            return self.case.roll(message["sets"], message["shifts"])
        raise ValueError(f"unknown command {command!r}")


class OpenCase:
    """One case: its tensors in shared memory or on the device, and per set the call to make."""

    def __init__(
        self, program: SharedObject | Module, clock: Clock, message: Message, descriptor: int
    ) -> None:
        layout = from_json(Layout, message["layout"])
        self.clock, self.layout = clock, layout
        self.mapped = Mapped(descriptor, layout)
        os.close(descriptor)
        self.inputs = [self._inputs(number) for number in range(layout.sets)]
        self.calls = [
            program.bind(self, message, number, self.inputs[number])
            for number in range(layout.sets)
        ]
        self.returned: dict[int, Any] = {}
        interpreter.limit(sum(region.nbytes for region in layout.of_set(0)))

    def _inputs(self, number: int) -> list[torch.Tensor]:
        """On the host the shared tensors themselves, elsewhere copies on the device."""
        regions = [region for region in self.layout.of_set(number) if not region.output]
        return [shared_tensor(self.mapped, region).to(self.clock.device) for region in regions]

    def outputs(self, number: int) -> list[Region]:
        return [region for region in self.layout.of_set(number) if region.output]

    def run(self, number: int, *, dirty: bool) -> Message:
        """One timed call. `dirty` first leaves poison in the memory that an allocation gets."""
        self.returned.clear()
        if dirty:
            dirt = [poisoned(r.shape, r.dtype, self.clock.device) for r in self.outputs(number)]
            del dirt
        if self.clock.device.type == "cpu":
            approach(self.mapped, self.layout.of_set(number))
        before = interpreter.launches()
        elapsed_ns, result = self.clock.measure(self.calls[number])
        self.returned[number] = result
        return {"ns": elapsed_ns, "launches": interpreter.launches() - before}

    def publish(self, number: int) -> Message:
        """Bring results and inputs of a set to shared memory; describes what was returned."""
        self.clock.settle()
        regions = [region for region in self.layout.of_set(number) if not region.output]
        if self.clock.device.type != "cpu":
            for region, value in zip(regions, self.inputs[number], strict=True):
                shared_tensor(self.mapped, region).copy_(value)
        result = self.returned.pop(number, None)
        if result is None:
            return {}
        described = describe(result)
        if described == [expected(region, self.clock.device) for region in self.outputs(number)]:
            values = result if isinstance(result, tuple | list) else (result,)
            for region, value in zip(self.outputs(number), values, strict=True):
                deliver(self.mapped, region, value)
        return {"returned": described}

    def roll(self, sets: list[int], shifts: list[int]) -> Message:
        """New values for the device copies: the referee rolls its own by the same shifts."""
        for number in sets:
            for value, shift in zip(self.inputs[number], shifts, strict=True):
                value.copy_(value.flatten().roll(shift).view_as(value))
        self.clock.settle()
        return {}

    def close(self) -> None:
        self.calls.clear()
        self.inputs.clear()
        self.returned.clear()
        self.mapped.close()


class SharedObject:
    """A compiled C++ candidate: called with the addresses of the shared tensors."""

    def __init__(self, path: str, symbols: dict[str, str]) -> None:
        self.library = ctypes.CDLL(path)
        for symbol, prototype in symbols.items():
            if not hasattr(self.library, symbol):
                raise MissingSymbol(f"the source does not export {prototype}")

    def bind(
        self, case: OpenCase, message: Message, number: int, inputs: list[torch.Tensor]
    ) -> Call:
        function = self.library[message["symbol"]]
        function.restype = None
        regions = case.layout.of_set(number)
        pointers = [ctypes.c_void_p(case.mapped.address(region)) for region in regions]
        sizes = [ctypes.c_int64(size) for size in message["sizes"]]
        arguments = (*pointers, *sizes)
        return lambda: function(*arguments)


class Module:
    """A Python candidate: `run(*inputs)` returns a tensor or a tuple of tensors."""

    def __init__(self, path: str) -> None:
        specification = importlib.util.spec_from_file_location("candidate", path)
        assert specification is not None
        assert specification.loader is not None
        module = importlib.util.module_from_spec(specification)
        sys.modules["candidate"] = module
        specification.loader.exec_module(module)
        self.run = getattr(module, "run", None)
        if not callable(self.run):
            raise MissingSymbol("the module defines no run(*inputs)")

    def bind(
        self, case: OpenCase, message: Message, number: int, inputs: list[torch.Tensor]
    ) -> Call:
        run = self.run

        def call() -> Any:
            result = run(*inputs)  # type: ignore[misc]
            return () if result is None else result

        return call


def describe(result: Any) -> list[list[Any]]:
    """Type, dtype, device, shape and contiguity of each returned value, as plain JSON."""
    values = result if isinstance(result, tuple | list) else (result,)
    described: list[list[Any]] = []
    for value in values:
        if type(value) is torch.Tensor:
            dtype = str(value.dtype).removeprefix("torch.")
            contiguous = value.layout is torch.strided and value.is_contiguous()
            described.append(["Tensor", dtype, str(value.device), list(value.shape), contiguous])
        else:
            described.append([type(value).__name__, "", "", [], False])
    return described


def expected(region: Region, device: torch.device) -> list[Any]:
    dtype = str(DTYPES[region.dtype]).removeprefix("torch.")
    return ["Tensor", dtype, str(device), list(region.shape), True]
