"""The baselines' process: our own trusted opponents, run by `timed` just as it runs a candidate.

It sees the referee's pristine inputs, which no candidate can touch, and imports no candidate code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
from collections.abc import Callable
from typing import Any

from kernels.catalog import load_all, load_problem
from runner.evaluate import timed
from runner.evaluate.channel import Channel, Message
from runner.evaluate.clocks import Clock
from runner.evaluate.referee import load_reference
from runner.evaluate.tensors import shared_tensor, warm_torch
from runner.evaluate.timed import Call, OpenCase

# What torch.compile imports when first called: ten seconds, which a child need not spend again.
COMPILER = ("compile_fx", "codegen.triton", "scheduler")
FLUSHES = 20  # a GPU at rest needs some milliseconds to raise its clocks


def warm() -> None:
    """What the zygote imports and touches before it forks; starts no thread, opens no device."""
    warm_torch()
    load_all()  # the contracts are parsed once here instead of in every child
    if os.environ.get("CUDA_VISIBLE_DEVICES"):
        for name in COMPILER:
            with contextlib.suppress(ImportError):
                importlib.import_module(f"torch._inductor.{name}")


def serve(channel: Channel) -> None:
    timed.serve(channel, load)


def load(message: Message, clock: Clock) -> tuple[Baselines, Message]:
    """Answers with the names, and how long a flush takes while nobody else is at work."""
    baselines = Baselines(message["problem"], message["given_outputs"])
    flushes = [clock.measure(lambda: None, 0).flush_ns for _ in range(FLUSHES)]
    known = [flush for flush in flushes if flush is not None]
    names = offered(list(baselines.functions), clock.kind)
    return baselines, {"baselines": names, "flush_ns": min(known, default=None)}


class Baselines:
    """A problem's `BASELINES`, by name."""

    def __init__(self, slug: str, given_outputs: bool) -> None:
        self.functions = load_reference(load_problem(slug).reference_path).BASELINES
        self.given_outputs = given_outputs

    def bind(self, case: OpenCase, name: str, number: int) -> Call:
        """A baseline does about its output what the candidate does.

        Against C++ it writes to given buffers, where it has an `out` parameter; against a Python
        module, which returns tensors of its own, it allocates. What it was given needs no copy.
        """
        function, inputs = self.functions[name], case.inputs(number)
        if not self.given_outputs or not accepts_out(function):
            return lambda: function(*inputs)
        outputs = tuple(shared_tensor(case.memory, region) for region in case.outputs(number))
        out = outputs[0] if len(outputs) == 1 else outputs

        def call() -> None:
            function(*inputs, out=out)

        return call


def offered(names: list[str], kind: str) -> list[str]:
    """On the host the eager ones only: a compiled one would need seconds of C++ for each shape."""
    return names if kind == "cuda" else [n for n in names if not n.startswith("torch.compile")]


def accepts_out(function: Callable[..., Any]) -> bool:
    try:
        return "out" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False
