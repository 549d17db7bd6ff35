"""The referee's process: draws inputs, computes the float64 oracle, judges outputs, runs baselines.

It never imports candidate code and never tells anyone an expected value or its seed. It writes no
verdict on an evaluation: it answers the parent, which does.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import torch

from kernels.catalog import Problem, Tolerance, load_problem
from runner.evaluate import malloc
from runner.evaluate.buffers import Layout, Mapped, Region
from runner.evaluate.candidate import tensor
from runner.evaluate.channel import Channel, Message
from runner.evaluate.draws import draw
from runner.evaluate.judge import BITS, Judgement, compare
from runner.results import Verdict
from runner.wire import from_json


def warm() -> None:
    """What the zygote imports and touches before it forks; starts no thread, opens no device."""
    torch.set_num_threads(1)
    torch.softmax(torch.ones(2, 2), dim=-1)


def serve(channel: Channel) -> None:
    """Answer commands until the parent closes the channel. An exception ends the process: ours."""
    malloc.keep_freed_memory()
    start = channel.receive()
    if start is None:
        return
    torch.set_num_threads(start["threads"])
    problem = load_problem(start["problem"])
    module = load_reference(problem)
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    channel.send({"baselines": baseline_names(module), "versions": versions})
    case: OpenCase | None = None
    while (message := channel.receive()) is not None:
        if message["do"] == "open":
            if case is not None:
                case.close()
            case = OpenCase(problem, module, message, channel.take_descriptors())
            channel.send({})
            continue
        assert case is not None
        channel.send(case.answer(message))


def load_reference(problem: Problem) -> Any:
    path = problem.reference_path
    specification = importlib.util.spec_from_file_location(f"reference_{problem.slug}", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def baseline_names(module: Any) -> list[str]:
    """The eager baselines: a compiled one needs a compiler at run time and is for CUDA devices."""
    return [name for name in module.BASELINES if not name.startswith("torch.compile")]


class OpenCase:
    """One case: pristine inputs of the referee, the shared ones of the candidate, the oracle.

    The referee keeps its own copy of every input in memory of the same kind, for two reasons: the
    baseline must not run on data that a candidate can touch, and a changed input must show.
    """

    def __init__(
        self, problem: Problem, module: Any, message: Message, descriptors: list[int]
    ) -> None:
        self.case = next(case for case in problem.cases if case.name == message["case"])
        self.problem, self.module = problem, module
        layout = from_json(Layout, message["layout"])
        shared, private = descriptors
        self.shared, self.mine = Mapped(shared, layout), Mapped(private, layout)
        os.close(shared)
        os.close(private)
        self.layout = layout
        self.oracles: dict[int, tuple[torch.Tensor, ...]] = {}
        self.kept: dict[int, list[torch.Tensor]] = {}
        self._fill()
        self.calls: dict[tuple[str, int], Callable[[], Any]] = {}

    def _fill(self) -> None:
        generator = torch.Generator()
        generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        arguments = {argument.name: argument for argument in self.problem.inputs}
        for region in self.layout.regions:
            if region.output:
                self.mine.poison(region)
                self.shared.poison(region)
            else:
                argument = arguments[region.name]
                name = self.case.draws.get(region.name, argument.draw)
                values = draw(name, region.shape, region.dtype, generator)
                tensor(self.mine, region).copy_(values)
                tensor(self.shared, region).copy_(values)
                self.shared.lay_canary(region)

    def answer(self, message: Message) -> Message:
        command, number = message["do"], message["set"]
        if command == "poison":
            for region in self.outputs(number):
                self.shared.poison(region)
                self.mine.poison(region)
            return {}
        if command == "baseline":
            return self.baseline(message["name"], number)
        if command == "inputs":
            return self._tampering(number) or {"verdict": Verdict.passed}
        if command == "judge":
            return self.judge(number, keep=message.get("keep", False))
        raise ValueError(f"unknown command {command!r}")

    def outputs(self, number: int) -> list[Region]:
        return [region for region in self.layout.of_set(number) if region.output]

    def inputs(self, number: int) -> list[Region]:
        return [region for region in self.layout.of_set(number) if not region.output]

    def baseline(self, name: str, number: int) -> Message:
        """One timed call of a named baseline, the clock directly around it."""
        call = self.calls.get((name, number)) or self._bind(name, number)
        self.calls[(name, number)] = call
        started = time.perf_counter_ns()
        result = call()
        ended = time.perf_counter_ns()
        del result
        return {"ns": ended - started}

    def _bind(self, name: str, number: int) -> Callable[[], Any]:
        """A baseline with an `out` parameter writes to given buffers, as a C++ candidate does."""
        function = self.module.BASELINES[name]
        inputs = [tensor(self.mine, region) for region in self.inputs(number)]
        outputs = tuple(tensor(self.mine, region) for region in self.outputs(number))
        if accepts_out(function):
            out = outputs[0] if len(outputs) == 1 else outputs
            return lambda: function(*inputs, out=out)
        return lambda: function(*inputs)

    def judge(self, number: int, *, keep: bool) -> Message:
        """Judge the shared outputs of a set. They are copied first: they may still change."""
        if evidence := self._tampering(number):
            return evidence
        outputs = [tensor(self.shared, region).clone() for region in self.outputs(number)]
        tolerance = self.problem.tolerances[self.case.dtype]
        judgements = [
            compare(region.name, output, reference, tolerance)
            for region, output, reference in zip(
                self.outputs(number), outputs, self.oracle(number), strict=True
            )
        ]
        reply = summary(judgements)
        if keep and reply["verdict"] == Verdict.passed:
            reply.update(self._repeat(number, outputs, tolerance))
        return reply

    def _repeat(self, number: int, outputs: list[torch.Tensor], tolerance: Tolerance) -> Message:
        """The second run on equal inputs must agree with the first within rounding."""
        if number not in self.kept:
            self.kept[number] = outputs
            return {}
        for region, first, second in zip(
            self.outputs(number), self.kept[number], outputs, strict=True
        ):
            repeated = compare(region.name, second, first.double(), tolerance)
            if repeated.verdict is not Verdict.passed:
                reason = f"two runs on the same input differ: {repeated.reason}"
                return {"verdict": Verdict.flaky, "reason": reason}
        return {}

    def _tampering(self, number: int) -> Message | None:
        for region in self.layout.of_set(number):
            damage = self.shared.canary_damage(region)
            if damage is not None:
                reason = f"wrote outside {region.name}: {damage} bytes past its end"
                return failure(Verdict.crashed, reason)
        for region in self.inputs(number):
            mine, shared = tensor(self.mine, region), tensor(self.shared, region)
            if not same_bits(mine, shared):
                return failure(Verdict.mutated_input, f"input {region.name} was changed")
        return None

    def oracle(self, number: int) -> tuple[torch.Tensor, ...]:
        if number not in self.oracles:
            inputs = [tensor(self.mine, region) for region in self.inputs(number)]
            doubles = [value.double() if value.is_floating_point() else value for value in inputs]
            result = self.module.reference(*doubles)
            self.oracles[number] = result if isinstance(result, tuple) else (result,)
        return self.oracles[number]

    def close(self) -> None:
        self.calls.clear()
        self.shared.close()
        self.mine.close()


def summary(judgements: list[Judgement]) -> Message:
    """The worst output speaks for the case."""
    failed = [judgement for judgement in judgements if judgement.verdict is not Verdict.passed]
    chosen = failed[0] if failed else judgements[0]
    return {
        "verdict": chosen.verdict,
        "reason": chosen.reason,
        "max_rel_error": largest([judgement.max_rel_error for judgement in judgements]),
        "norm_error": largest([judgement.norm_error for judgement in judgements]),
    }


def failure(verdict: Verdict, reason: str) -> Message:
    return {"verdict": verdict, "reason": reason, "max_rel_error": None, "norm_error": None}


def largest(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known else None


def same_bits(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Bitwise equality: NaN equals NaN, and −0 differs from 0."""
    kind = BITS[first.element_size()]
    return torch.equal(first.view(kind), second.view(kind))


def accepts_out(function: Callable[..., Any]) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
