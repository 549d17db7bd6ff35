"""The simulating child: runs one candidate in the instrumented interpreter, notes what it saw.

Runs inside the sandbox, in a fork of its own. It judges no value: the outputs go to shared memory,
beside them the line that wrote each element, and the report is what `memory` saw.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import triton

from runner.analysis import standin
from runner.analysis.interpreter import Unsupported
from runner.analysis.interpreter_launch import Simulation, install
from runner.analysis.memory import Memory, Waiting
from runner.analysis.memory_torch import HostAccesses
from runner.analysis.simulate_report import Launched, Note, Report, Trouble, TroubleKind
from runner.analysis.targets import DEFAULT, TARGETS
from runner.evaluate.buffers import Layout, Region
from runner.evaluate.channel import Message
from runner.evaluate.host_memory import HostMemory
from runner.evaluate.modules import module_at
from runner.evaluate.tensors import BITS, DTYPES, shared_tensor
from runner.wire import canonical, from_json, to_json

MESSAGE_CHARACTERS = 2000
NEEDS_DEVICE = ("not compiled with CUDA", "NVIDIA driver", "CUDA driver", "CUDA error")


class Questions:
    """What the candidate asked of the device that is not there."""

    def __init__(self) -> None:
        self.asked: dict[str, None] = {}

    def launched(self, key: str, grid: tuple[int, int, int], arguments: dict[str, Any]) -> None:
        """Nothing is compiled here, so nothing compiled is launched."""

    def assumed(self, question: str) -> None:
        self.asked[question] = None

    def product(self, name: str) -> None:
        """Products are computed here, see OnHost."""

    def registers(self, cubin: bytes) -> int:
        return 0


class OnHost(standin.OnDevice):
    """As the stand-in, but torch's own products are computed: a kernel may read them."""

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        if function in standin.HEAVY:
            return function(*arguments, **(keywords or {}))
        return super().__torch_function__(function, types, arguments, keywords)


def simulate(message: Message, descriptors: list[int]) -> None:
    """Run the candidate once; its answer, its lines and its report lie in the memory given."""
    tensors, lines, report = descriptors
    layout = from_json(Layout, message["layout"])
    shared = HostMemory(tensors, layout)
    undefined = message["undefined"]
    memory = Memory(message["artifact"], None if undefined is None else frozenset(undefined))
    inputs = [shared_tensor(shared, region) for region in layout.regions if not region.output]
    names = [region.name for region in layout.regions if not region.output]
    for name, tensor in zip(names, inputs, strict=True):
        memory.allocation(tensor).input = name
    questions = Questions()
    target = TARGETS[DEFAULT]
    standin.install(target, questions)
    triton.runtime.driver.set_active(standin.Driver(target, questions))
    simulation = install(memory)
    started = time.monotonic()
    run = Run(message["artifact"], memory)
    with OnHost(questions), HostAccesses(memory):
        run.call(inputs)
    outputs = [region for region in layout.regions if region.output]
    run.deliver(shared, outputs, lines)
    found = _report(run, simulation, questions, time.monotonic() - started)
    with os.fdopen(report, "wb") as file:
        file.write(canonical(to_json(found)).encode("utf-8", errors="replace"))


class Run:
    """One call of the candidate's `run` and what came of it."""

    def __init__(self, artifact: str, memory: Memory) -> None:
        self.artifact, self.memory = artifact, memory
        self.trouble: Trouble | None = None
        self.returned: tuple[Any, ...] = ()
        self.stored_at: list[int] = []

    def call(self, inputs: Sequence[torch.Tensor]) -> None:
        stage = TroubleKind.load
        try:
            module = module_at(self.artifact)
            stage = TroubleKind.run
            result = module.run(*inputs)
            self.returned = tuple(result) if isinstance(result, tuple | list) else (result,)
        except BaseException as error:  # also SystemExit: all are its own doing
            self.trouble = self._trouble(error, stage)

    def _trouble(self, error: BaseException, stage: TroubleKind) -> Trouble:
        traceback.print_exception(error)
        line, cause = self._line(error), _cause(error)
        words = f"{type(cause).__name__}: {cause}"[:MESSAGE_CHARACTERS]
        if isinstance(cause, Unsupported):
            return Trouble(TroubleKind.unsupported, cause.operation, line)
        if isinstance(cause, Waiting):
            return Trouble(TroubleKind.waiting, str(cause), line)
        lacks = isinstance(cause, standin.Unsupported | MemoryError | NotImplementedError)
        if lacks or any(text in str(cause) for text in NEEDS_DEVICE):
            return Trouble(TroubleKind.limit, words, line)
        return Trouble(stage, words, line)

    def _line(self, error: BaseException) -> int:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame.lineno for frame in frames if frame.filename == self.artifact]
        if not own and isinstance(error, SyntaxError) and error.filename == self.artifact:
            return error.lineno or 0
        return (own[-1] or 0) if own else 0

    def deliver(self, shared: HostMemory, outputs: list[Region], lines: int) -> None:
        """Copy the answer, NaN where nobody wrote it, and beside it who wrote each element."""
        if self.trouble is None:
            self.trouble = self._malformed(outputs)
        if self.trouble is not None:
            return
        written: list[Any] = []
        for region, value in zip(outputs, self.returned, strict=True):
            place = shared_tensor(shared, region)
            place.copy_(value.detach())
            unwritten = self.memory.unwritten(value)
            if unwritten.any():
                bits = place.view(BITS[place.element_size()])
                bits[torch.from_numpy(np.ascontiguousarray(unwritten))] = -1
            written += self.memory.last_writers(value)
            self.stored_at.append(self.memory.stored_at(value))
        os.pwrite(lines, np.concatenate(written).astype(np.int32).tobytes(), 0)

    def _malformed(self, outputs: list[Region]) -> Trouble | None:
        """What the contract says of form: how many tensors, of which dtype and shape."""
        if len(self.returned) != len(outputs):
            words = f"run returned {len(self.returned)} values, expected {len(outputs)}"
            return Trouble(TroubleKind.answer, words, 0)
        for region, value in zip(outputs, self.returned, strict=True):
            wanted = f"{str(DTYPES[region.dtype]).removeprefix('torch.')} {list(region.shape)}"
            got = type(value).__name__
            if type(value) is torch.Tensor:
                got = f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
            if got != wanted:
                words = f"{region.name} is {got}, expected {wanted}"
                return Trouble(TroubleKind.answer, words, 0)
        return None


def _cause(error: BaseException) -> BaseException:
    """The exception that says most: what our own interpreter raised, wherever in the chain."""
    link: BaseException | None = error
    while link is not None:
        if isinstance(link, Unsupported | Waiting):
            return link
        link = link.__cause__ or link.__context__
    return error


def _report(run: Run, simulation: Simulation, questions: Questions, seconds: float) -> Report:
    memory = run.memory
    return Report(
        trouble=run.trouble,
        launches=tuple(
            Launched(each.kernel, each.grid, each.programs, each.simulated)
            for each in simulation.launches
        ),
        sightings=tuple(memory.sightings.found.values()),
        notes=tuple(Note(*said, times) for said, times in memory.notes.items()),
        tuned=tuple(simulation.tuned),
        assumed=tuple(questions.asked | simulation.assumed),
        undefined_lines=tuple(sorted(memory.undefined_lines)),
        stored_at=tuple(run.stored_at),
        duplicates=memory.races.duplicates,
        seconds=seconds,
    )
