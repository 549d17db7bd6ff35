"""A process that runs one program on command and times each call: a candidate's, or our baselines'.

Both sides run this same code in a process of their own, so that what differs between them is the
program alone. When the baseline was run in the referee's process, which had just been at work, a
kernel against itself came out at 0.9 to 0.98. Nothing said here is trusted: shapes are compared by
the parent, times with the parent's clock, and tensors are judged by the referee.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import torch

from runner.evaluate import interpreter, malloc
from runner.evaluate.buffers import Layout, Memory, Region
from runner.evaluate.channel import Channel, Message
from runner.evaluate.clocks import Clock, clock_for
from runner.evaluate.tensors import DTYPES, adopt_memory, deliver, poisoned, shared_tensor
from runner.wire import from_json

TRACEBACK_CHARACTERS = 4000
_libc = ctypes.CDLL(None)
Call = Callable[[], Any]


class MissingSymbol(LookupError):
    """The candidate lacks the function that the problem asks for."""


class Program(Protocol):
    """What is run: `bind` makes the call of one set."""

    def bind(self, case: OpenCase, name: str, number: int) -> Call: ...


Load = Callable[[Message, Clock], tuple[Program, Message]]  # a program, and the answer to it


def serve(channel: Channel, load: Load) -> None:
    """Answer commands until the parent closes the channel."""
    malloc.keep_freed_memory()
    session = Session(load)
    while (message := channel.receive()) is not None:
        try:
            reply = session.answer(message, channel.take_descriptors())
        except MissingSymbol as error:
            reply = {"failed": "missing_symbol", "text": str(error)}
        except (MemoryError, torch.OutOfMemoryError) as error:
            reply = {"failed": "memory", "text": f"{type(error).__name__}: {error}"}
        except Exception as error:
            reply = _failure(error)
        flush()
        channel.send({**reply, "nonce": message["nonce"]})


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
    path = getattr(sys.modules.get("candidate"), "__file__", None)
    own = [frame for frame in frames if frame.filename == path]
    where = f" (candidate.py:{own[-1].lineno} in {own[-1].name})" if own else ""
    return {"failed": "exception", "text": f"{type(error).__name__}: {error}{where}"[:2000]}


class Session:
    """The device, a program loaded when we are told to, and the case it is on."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.clock: Clock | None = None
        self.program: Program | None = None
        self.case: OpenCase | None = None

    def answer(self, message: Message, descriptors: list[int]) -> Message:
        command = message["do"]
        if command == "run":
            assert self.case is not None
            return self.case.run(message)
        self.close()
        if command == "start":
            torch.set_num_threads(message["threads"])
            self.clock = self.clock or clock_for(message["kind"])
            return {}
        assert self.clock is not None
        if command == "close":
            self.clock.release()
            return {}
        if command == "load":
            self.program, reply = self.load(message, self.clock)
            return reply
        assert self.program is not None
        if command == "open":
            layout = from_json(Layout, message["layout"])
            memory = adopt_memory(self.clock.kind, layout, descriptors)
            self.case = OpenCase(self.program, self.clock, message, memory)
            return {}
        raise ValueError(f"unknown command {command!r}")

    def close(self) -> None:
        if self.case is not None:
            self.case.close()
            self.case = None


class OpenCase:
    """One case: its tensors in shared memory of the device, and per set the call to make."""

    def __init__(self, program: Program, clock: Clock, message: Message, memory: Memory) -> None:
        self.program, self.clock = program, clock
        self.memory, self.layout = memory, memory.layout
        self.symbol, self.sizes = message["symbol"], message["sizes"]
        self.calls: dict[tuple[str, int], Call] = {}
        self.returned: Any = None
        interpreter.limit(sum(region.nbytes for region in self.layout.of_set(0)))

    def inputs(self, number: int) -> list[torch.Tensor]:
        regions = [region for region in self.layout.of_set(number) if not region.output]
        return [shared_tensor(self.memory, region) for region in regions]

    def outputs(self, number: int) -> list[Region]:
        return [region for region in self.layout.of_set(number) if region.output]

    def run(self, message: Message) -> Message:
        """One timed call, and its answer brought to shared memory before the parent hears of it.

        So there is no later step in which work could be done that neither clock sees. `dirty`
        first leaves poison in the memory that an allocation gets. The last answer lives until the
        next is there: two blocks then take turns on both sides, whatever holes an allocator has;
        one side with one block and the other with two differed by 3%.
        """
        name, number = message["name"], message["set"]
        if message["dirty"]:
            dirt = [poisoned(r.shape, r.dtype, self.clock.device) for r in self.outputs(number)]
            del dirt
        call = self.calls.get((name, number))
        if call is None:
            call = self.calls[(name, number)] = self.program.bind(self, name, number)
        before = interpreter.launches()
        measured = self.clock.measure(call, message["wait_us"])
        self.returned = measured.returned
        described = self._publish(number, measured.returned)
        self.clock.settle()
        return {
            "ns": measured.ns,
            "launch_ns": measured.launch_ns,
            "flush_ns": measured.flush_ns,
            "launches": interpreter.launches() - before,
            **described,
        }

    def _publish(self, number: int, result: Any) -> Message:
        """Copy what was returned into the shared outputs, if it is what the contract wants."""
        if result is None:
            return {}
        described = describe(result)
        if described == [expected(region, self.clock.device) for region in self.outputs(number)]:
            values = result if isinstance(result, tuple | list) else (result,)
            for region, value in zip(self.outputs(number), values, strict=True):
                deliver(self.memory, region, value)
        return {"returned": described}

    def close(self) -> None:
        self.calls.clear()
        self.returned = None
        self.memory.close()


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
