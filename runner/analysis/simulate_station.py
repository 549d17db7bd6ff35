"""The zygote that simulates candidates: Triton's interpreter on, and confined like a candidate's.

It differs from the one that compiles in its environment, which decides at import whether Triton
interprets, and in what its forks do.
"""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager

from runner.analysis import station
from runner.evaluate import keeper
from runner.evaluate.channel import Channel

KIND = keeper.Kind("simulator", interpreted=True)
ENVIRONMENT = station.ENVIRONMENT | {"TRITON_INTERPRET": "1"}


def borrowed(cancel: threading.Event | None = None) -> AbstractContextManager[keeper.Zygote]:
    """The zygote, ours alone for the time: started lazily, replaced when it has died."""
    return keeper.borrowed(KIND, ENVIRONMENT, cancel)


def prepare() -> keeper.Zygote:
    """Start it unless it runs; does not wait until it is ready."""
    return keeper.prepare(KIND, ENVIRONMENT)


def stop() -> None:
    """End it; the next simulation starts a new one."""
    keeper.stop_all()


def serve(channel: Channel) -> None:
    """Answer one question: draw, simulate or judge. Each is asked in a fork of its own."""
    from runner.analysis import simulate_child, simulate_judge

    message = channel.receive()
    if message is None:
        return
    reply = {}
    descriptors = channel.take_descriptors()
    if message["do"] == "simulate":
        simulate_child.simulate(message, descriptors)
    elif message["do"] == "fill":
        reply = simulate_judge.fill(message, descriptors)
    else:
        reply = simulate_judge.judge(message, descriptors)
    channel.send({**reply, "nonce": message["nonce"]})


def warm() -> None:
    """What the zygote does once for all: imports, contracts, and the first use of each library."""
    from kernels.catalog import load_all
    from runner.analysis import simulate_child, simulate_judge
    from runner.evaluate.tensors import warm_torch

    assert simulate_child
    assert simulate_judge
    warm_torch()
    load_all()
