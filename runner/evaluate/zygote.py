"""A long-lived process that has torch imported and forks one fresh child per evaluation.

Run as `python -m runner.evaluate.zygote`. It holds no secret, opens no CUDA context and starts no
thread, so that a fork of it is a clean process. It judges and times nothing: the role module
(`referee`, `baseline` or `candidate`) does, in the child. It leaves no process behind: orphans of a
child are adopted and killed, and when the parent is gone everything ends.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from runner import sandbox
from runner.evaluate.channel import Channel, Message

ROLES = {
    "referee": "runner.evaluate.referee",
    "baseline": "runner.evaluate.baseline",
    "candidate": "runner.evaluate.candidate",
    "analyst": "runner.analysis.capture",
    "simulator": "runner.analysis.simulate_station",
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="runner.evaluate.zygote")
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--role", choices=ROLES, required=True)
    parser.add_argument("--scratch", type=Path, help="a folder of ours alone, emptied each time")
    arguments = parser.parse_args()
    # Started from a shell's background, it would ignore what a candidate sends to harm it unseen.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sandbox.die_with_parent()
    sandbox.adopt_orphans()
    sandbox.seal(True)
    processors = os.sched_getaffinity(0)
    role = importlib.import_module(ROLES[arguments.role])
    role.warm()
    os.sched_setaffinity(0, processors)  # OpenMP has bound this thread to its first place
    gc.collect()
    gc.freeze()  # shared pages stay shared: the collector of a child need not touch them
    control = Channel(socket.socket(fileno=arguments.control))
    os.set_inheritable(arguments.control, False)
    control.send({"ready": os.getpid()})
    while (request := control.receive()) is not None:
        if request.get("do") != "kill":  # one that crossed with the child's own end
            _serve(control, request, role, arguments.scratch)


def _serve(control: Channel, request: Message, role: ModuleType, scratch: Path | None) -> None:
    """Fork, wait for the end of the child or of the parent, clean up, report."""
    descriptors = control.take_descriptors()
    if scratch is not None:
        request["environment"] = sandbox.homes(scratch)
        request["folder"] = str(scratch)  # relative paths are honest, and its work folder read-only
    pid = os.fork()
    if pid == 0:
        _become(control, request, descriptors, role)
    for descriptor in descriptors:
        os.close(descriptor)
    parent_alive = _watch(control, pid)
    _, status = os.waitpid(pid, 0)
    leftover = sandbox.kill_descendants()
    if scratch is not None:
        sandbox.empty(scratch)
    if not parent_alive:
        sys.exit(0)
    control.send({"exited": os.waitstatus_to_exitcode(status), "leftover": leftover})


def _watch(control: Channel, pid: int) -> bool:
    """Until the child has ended; kills it on request. False when the parent is gone."""
    handle = os.pidfd_open(pid)
    parent_alive = True
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    poller.register(control.fileno(), select.POLLIN)
    try:
        while not any(ready == handle for ready, _ in poller.poll()):
            parent_alive = control.fill() and control.take() is not None
            sandbox.kill_tree()
            if not parent_alive:
                poller.unregister(control.fileno())
    finally:
        os.close(handle)
    return parent_alive


def _become(
    control: Channel, request: Message, descriptors: list[int], role: ModuleType
) -> NoReturn:
    """The forked child: private session, output pipe and limits, then the role until it ends."""
    status = 70
    try:
        control.close()
        sandbox.die_with_parent()
        sandbox.seal(False)
        os.setsid()
        channel, output = descriptors
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        _enter(request)
        role.serve(Channel(socket.socket(fileno=channel)))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


def _enter(request: Message) -> None:
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    if limits := request.get("limits"):
        sandbox.limit_this_process(**limits)


if __name__ == "__main__":
    main()
