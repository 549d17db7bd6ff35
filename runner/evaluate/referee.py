"""The referee's process: draws inputs, computes the float64 oracle, judges outputs.

It never imports candidate code and never tells anyone an expected value or its seed. It writes no
verdict on an evaluation: it answers the parent, which does.
"""

from __future__ import annotations

import functools
import os
import platform
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernels.catalog import Case, Problem, Tolerance, load_all, load_problem
from runner.evaluate import malloc
from runner.evaluate.buffers import Layout, Region
from runner.evaluate.channel import Channel, Message
from runner.evaluate.clocks import Clock, clock_for
from runner.evaluate.draws import INDEPENDENT, draw, draw_name
from runner.evaluate.judge import Judgement, Oracle
from runner.evaluate.modules import module_at
from runner.evaluate.tensors import (
    DTYPES,
    canary_damage,
    create_memory,
    same_bits,
    shared_tensor,
    warm_torch,
)
from runner.results import Verdict
from runner.wire import from_json


def warm() -> None:
    """What the zygote imports and touches before it forks; starts no thread, opens no device."""
    warm_torch()
    load_all()  # the contracts are parsed once here instead of in every child


def serve(channel: Channel) -> None:
    """Answer commands until the parent closes the channel. An exception ends the process: ours."""
    malloc.keep_freed_memory()
    session = Session()
    while (message := channel.receive()) is not None:
        reply, descriptors = session.answer(message)
        channel.send({**reply, "nonce": message["nonce"]}, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


class Session:
    """The device, a problem, and the case it is on."""

    def __init__(self) -> None:
        self.clock: Clock | None = None
        self.case: OpenCase | None = None

    def answer(self, message: Message) -> tuple[Message, list[int]]:
        """A reply, and descriptors that go with it: the caller closes them."""
        command = message["do"]
        if command not in ("start", "open", "close"):
            assert self.case is not None
            return self.case.answer(message), []
        if self.case is not None:
            self.case.close()
            self.case = None
        if command == "start":
            return self.start(message), []
        assert self.clock is not None
        if command == "close":
            self.clock.release()
            return {}, []
        self.case = OpenCase(self.problem, self.module, self.clock, message)
        return {}, self.case.descriptors

    def start(self, message: Message) -> Message:
        torch.set_num_threads(message["threads"])
        self.problem = load_problem(message["problem"])
        self.module = load_reference(self.problem.reference_path)
        self.clock = self.clock or clock_for(message["kind"])
        versions = {"torch": torch.__version__, "python": platform.python_version()}
        return {"versions": versions, "l2_bytes": l2_bytes(message["kind"])}


def load_reference(path: Path) -> Any:
    """A problem's `reference.py` as a module, ours and trusted; loaded anew when it changed."""
    return _load_reference(path, path.stat().st_mtime_ns)


@functools.cache
def _load_reference(path: Path, modified_ns: int) -> Any:
    return module_at(path, f"reference_{path.parent.name}")


def l2_bytes(kind: str) -> int | None:
    """What the last cache of a GPU holds; the driver's own tools do not say."""
    if kind != "cuda":
        return None
    return getattr(torch.cuda.get_device_properties(0), "L2_cache_size", None)


class OpenCase:
    """One case: pristine inputs of the referee, the shared ones of the candidate, the oracle.

    The referee keeps its own copy of every input in memory of the same kind, for two reasons: the
    baseline must not run on data that a candidate can touch, and a changed input must show.
    `descriptors` let other processes map memory: the first half is the candidate's, the second half
    the baseline's.
    """

    def __init__(self, problem: Problem, module: Any, clock: Clock, message: Message) -> None:
        self.case = next(case for case in problem.cases if case.name == message["case"])
        self.problem, self.module, self.clock = problem, module, clock
        self.random = random.SystemRandom()
        self.layout = from_json(Layout, message["layout"])
        made = [create_memory(clock.kind, self.layout) for _ in range(2)]
        self.random.shuffle(made)  # which was made first must favour neither side
        (self.shared, for_candidate), (self.mine, for_baseline) = made
        self.descriptors = for_candidate + for_baseline
        self.generator = torch.Generator(clock.device)
        self.generator.manual_seed(int.from_bytes(os.urandom(8), "little") >> 1)
        self.pristine: dict[int, list[torch.Tensor]] = {}
        self.oracles: dict[int, tuple[Oracle, ...]] = {}
        self.kept: dict[int, list[torch.Tensor]] = {}
        for number in range(self.layout.sets):
            self._fill(number)
        clock.settle()

    def _fill(self, number: int) -> None:
        """Draw the inputs of a set and give both sides a copy; poison the outputs of both."""
        self.pristine[number] = [self._draw(region) for region in self.inputs(number)]
        self._distribute(number)

    def _distribute(self, number: int) -> None:
        """Both sides alike, from a source that is neither's, and neither always written last.

        Read from the baseline's memory, the values made its calls 2% faster than the candidate's.
        """
        both = [self.shared, self.mine]
        self.random.shuffle(both)
        for memory in both:
            for region, values in zip(self.inputs(number), self.pristine[number], strict=True):
                shared_tensor(memory, region).copy_(values)
                memory.lay_canary(region)
            for region in self.outputs(number):
                memory.poison(region)

    def _draw(self, region: Region) -> torch.Tensor:
        return draw(self._draw_name(region), region.shape, region.dtype, self.generator)

    def _draw_name(self, region: Region) -> str:
        argument = next(a for a in self.problem.inputs if a.name == region.name)
        return draw_name(self.case, argument)

    def _poison(self, number: int) -> None:
        for region in self.outputs(number):
            self.shared.poison(region)

    def answer(self, message: Message) -> Message:
        """One command; when it is answered, the device is idle."""
        command, number = message["do"], message.get("set", 0)
        if command == "poison":
            self._poison(number)
        elif command == "renew":
            self._renew(number)
        elif command == "prepare":
            memory = self.shared if message["side"] == "candidate" else self.mine
            self.clock.prepare(memory, self.layout.of_set(number))
        elif command == "inputs":
            return self._tampering(number) or {"verdict": Verdict.passed}
        elif command == "judge":
            return self.judge(number, keep=message.get("keep", False))
        else:
            raise ValueError(f"unknown command {command!r}")
        self.clock.settle()
        return {}

    def outputs(self, number: int) -> list[Region]:
        return [region for region in self.layout.of_set(number) if region.output]

    def inputs(self, number: int) -> list[Region]:
        return [region for region in self.layout.of_set(number) if not region.output]

    def _renew(self, number: int) -> None:
        """Fresh values for a timed pair: where draws are independent at the price of a copy.

        Rolling independent draws by a random distance leaves their distribution; others are drawn
        again.
        """
        self.oracles.pop(number, None)
        for position, region in enumerate(self.inputs(number)):
            value = self.pristine[number][position]
            if self._draw_name(region) in INDEPENDENT and value.numel() > 1:
                distance = self.random.randrange(1, value.numel())
                fresh = value.flatten().roll(distance).view_as(value)
            else:
                fresh = self._draw(region)
            self.pristine[number][position] = fresh
        self._distribute(number)

    def judge(self, number: int, *, keep: bool) -> Message:
        """Judge the shared outputs of a set. They are copied first: they may still change."""
        if evidence := self._tampering(number):
            return evidence
        outputs = [shared_tensor(self.shared, region).clone() for region in self.outputs(number)]
        tolerance = self.problem.tolerances[self.case.dtype]
        judgements = [
            oracle.judge(output, tolerance)
            for oracle, output in zip(self.oracle(number), outputs, strict=True)
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
            self.outputs(number), self.kept.pop(number), outputs, strict=True
        ):
            if same_bits(first, second):
                continue
            repeated = Oracle(region.name, first.double(), first.dtype).judge(second, tolerance)
            if repeated.verdict is not Verdict.passed:
                reason = f"two runs on the same input differ: {repeated.reason}"
                return {"verdict": Verdict.flaky, "reason": reason}
        return {}

    def _tampering(self, number: int) -> Message | None:
        for region in self.layout.of_set(number):
            damage = canary_damage(self.shared, region)
            if damage is not None:
                reason = f"wrote outside {region.name}: {damage} bytes past its end"
                return failure(Verdict.crashed, reason)
        for region, pristine in zip(self.inputs(number), self.pristine[number], strict=True):
            if not same_bits(pristine, shared_tensor(self.shared, region)):
                return failure(Verdict.mutated_input, f"input {region.name} was changed")
        return None

    def oracle(self, number: int) -> tuple[Oracle, ...]:
        """The truth for a set, computed once, in float64 from the referee's own inputs."""
        if number not in self.oracles:
            inputs = self.pristine[number]
            self.oracles[number] = oracles(self.module, self.problem, self.case, inputs)
        return self.oracles[number]

    def close(self) -> None:
        self.pristine.clear()
        self.oracles.clear()
        self.kept.clear()
        self.shared.close()
        self.mine.close()


def oracles(
    module: Any, problem: Problem, case: Case, inputs: Sequence[torch.Tensor]
) -> tuple[Oracle, ...]:
    """The truth about inputs, one oracle per output, computed in float64."""
    doubles = [value.double() if value.is_floating_point() else value for value in inputs]
    result = module.reference(*doubles)
    values = result if isinstance(result, tuple) else (result,)
    return tuple(
        Oracle(argument.name, value, DTYPES[case.dtype_of(argument)])
        for argument, value in zip(problem.outputs, values, strict=True)
    )


def summary(judgements: list[Judgement]) -> Message:
    """The first output that fails speaks for the case; errors are the worst of all."""
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
