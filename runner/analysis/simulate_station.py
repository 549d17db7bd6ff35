"""The process that simulates candidates: a zygote with Triton's interpreter on, and confined.

Run as `python -m runner.analysis.simulate_station`. It differs from the station that compiles in
its environment, which decides at import whether Triton interprets, and in what its forks do.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from runner import sandbox
from runner.analysis.station import Unavailable
from runner.evaluate import keeper, zygote
from runner.evaluate.channel import Channel
from runner.processes import POLL_S, Cancelled

THREADS = "1"  # pools of numpy, OpenMP and MKL would start threads before the fork


class Station(keeper.Zygote):
    """One simulating zygote and its work folder."""

    def __init__(self) -> None:
        self.kind = keeper.Kind("candidate", interpreted=True)
        self.folder = keeper.WorkFolder()
        self.lock = threading.Lock()
        self.owner = os.getpid()
        self.ready, self.ready_bytes = False, 0
        self.kept: keeper.Child | None = None
        self.control, theirs = Channel.pair()
        argv = [sys.executable, "-P", "-m", __name__, "--control", str(theirs.fileno())]
        if sandbox.isolation().usable:
            argv += ["--scratch", str(sandbox.SCRATCH)]
        argv = sandbox.command(argv, self.folder.path, cuda=False)
        environment = sandbox.environment(self.folder.path, _environment())
        try:
            self.process = keeper._start(argv, environment, self.folder.path, theirs)
        except OSError as error:
            self.folder.remove()
            raise keeper.ZygoteDied("candidate", f"it did not start: {error}") from error


def _environment() -> dict[str, str]:
    threads = {f"{name}_NUM_THREADS": THREADS for name in ("OMP", "MKL", "OPENBLAS")}
    return threads | {"CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": "1"}


_station: Station | None = None
_registry = threading.Lock()


@contextlib.contextmanager
def borrowed(cancel: threading.Event | None = None) -> Iterator[Station]:
    """The station, ours alone for the time: started lazily, replaced when it has died."""
    station = prepare()
    while not station.lock.acquire(timeout=POLL_S):
        if cancel is not None and cancel.is_set():
            raise Cancelled
    try:
        _await_ready(station)
        yield station
    finally:
        if station.folder.path.is_dir():
            sandbox.empty(station.folder.path, keep=frozenset({keeper.LOG}))
        station.lock.release()


def _await_ready(station: Station) -> None:
    """A station that never starts is no candidate's fault. Raises Unavailable."""
    try:
        station.await_ready()
    except keeper.ZygoteDied as died:
        raise Unavailable(f"the simulation cannot start: {died}") from died


def prepare() -> Station:
    """Start the station unless it runs; does not wait until it is ready."""
    global _station
    with _registry:
        if _station is None or not _station.usable:
            _station = Station()
        return _station


@atexit.register
def stop() -> None:
    """End the station of this process; the next simulation starts a new one."""
    global _station
    with _registry:
        if _station is not None:
            _station.stop()
            _station = None


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
    import torch

    from kernels.catalog import load_all
    from runner.analysis import simulate_child, simulate_judge

    assert simulate_child
    assert simulate_judge
    torch.set_num_threads(1)
    torch.softmax(torch.ones(2, 2), dim=-1)
    load_all()


def main() -> None:
    parser = argparse.ArgumentParser(prog="runner.analysis.simulate_station")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--scratch", type=Path, help="a folder of ours alone, emptied each time")
    arguments = parser.parse_args()
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    sandbox.seal(True)
    warm()
    gc.collect()
    gc.freeze()
    control = Channel(socket.socket(fileno=arguments.control))
    os.set_inheritable(arguments.control, False)
    control.send({"ready": os.getpid()})
    role = SimpleNamespace(serve=serve)
    while (request := control.receive()) is not None:
        if request.get("do") != "kill":
            zygote._serve(control, request, role, arguments.scratch)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
