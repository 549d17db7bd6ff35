"""The process that analyses candidates: a zygote with Triton imported, confined like a candidate's.

Run as `python -m runner.analysis.station`. The parent's half starts it, lends it out and ends it;
forking, deadlines and clean-up are those of the evaluation's zygotes.
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

from runner import sandbox
from runner.evaluate import keeper, zygote
from runner.evaluate.channel import Channel
from runner.processes import POLL_S, Cancelled

THREADS = "1"  # pools of numpy, OpenMP and MKL would start threads before the fork


class Unavailable(RuntimeError):
    """Torch, Triton or the sandbox did not start; the message has their words."""


class Station(keeper.Zygote):
    """One analysis zygote and its work folder."""

    def __init__(self) -> None:
        self.kind = keeper.Kind("candidate")
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
    return threads | {"CUDA_VISIBLE_DEVICES": ""}


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
        raise Unavailable(f"the analysis cannot start: {died}") from died


def prepare() -> Station:
    """Start the station unless it runs; does not wait until it is ready."""
    global _station
    with _registry:
        if _station is None or not _station.usable:
            _station = Station()
        return _station


@atexit.register
def stop() -> None:
    """End the station of this process; the next analysis starts a new one."""
    global _station
    with _registry:
        if _station is not None:
            _station.stop()
            _station = None


def main() -> None:
    parser = argparse.ArgumentParser(prog="runner.analysis.station")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--scratch", type=Path, help="a folder of ours alone, emptied each time")
    arguments = parser.parse_args()
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    sandbox.seal(True)
    from runner.analysis import capture

    capture.warm()
    gc.collect()
    gc.freeze()
    control = Channel(socket.socket(fileno=arguments.control))
    os.set_inheritable(arguments.control, False)
    control.send({"ready": os.getpid()})
    while (request := control.receive()) is not None:
        if request.get("do") != "kill":
            zygote._serve(control, request, capture, arguments.scratch)


if __name__ == "__main__":
    main()
