"""Runs the programs of one machine as children, restarts those that die, and stops them all.

Nothing outlives it: each child has its own process group and is killed by the kernel if this
process dies, and orphans of a child that died come here to be ended. What the programs are is not
decided here.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
TERMINATE_S = 3.0  # how long children may take to end by themselves; all must be over in 5 s
STEADY_S = 30.0  # a child that ran so long had no trouble starting
LONGEST_BACKOFF_S = 30.0
ORPHANS_EVERY_S = 5.0  # looking through /proc is not free
LOG_BYTES = 10 * 1024 * 1024
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


@dataclass(frozen=True)
class Program:
    """`last` programs are stopped after all others: those still need them to say goodbye."""

    name: str
    argv: list[str]
    environment: dict[str, str]
    last: bool = False


@dataclass
class Child:
    program: Program
    log: Path
    process: subprocess.Popen[bytes]
    started: float
    failures: int = 0
    restart_at: float | None = None

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


@dataclass
class Supervisor:
    """Must be used from one thread: the kernel ties a child's life to the thread that made it."""

    logs: Path
    folder: Path  # where the programs run
    say: Callable[[str], None]
    children: list[Child] = field(default_factory=list)
    orphans_ended_at: float = 0.0

    def adopt_orphans(self) -> None:
        """From now on, processes whose parents died become ours to end."""
        if _libc is not None:
            _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def start(self, program: Program) -> Child:
        log = self.logs / f"{program.name}.log"
        child = Child(program, log, _spawn(program, log, self.folder), time.monotonic())
        self.children.append(child)
        return child

    def check(self) -> None:
        """Restart what died, each time a little later; now and then end orphans."""
        for child in self.children:
            if child.restart_at is not None and time.monotonic() >= child.restart_at:
                child.process = _spawn(child.program, child.log, self.folder)
                child.started, child.restart_at = time.monotonic(), None
            elif child.restart_at is None and not child.alive:
                self._plan_restart(child)
        if time.monotonic() - self.orphans_ended_at > ORPHANS_EVERY_S:
            self.end_orphans()

    def _plan_restart(self, child: Child) -> None:
        now = time.monotonic()
        child.failures = 0 if now - child.started > STEADY_S else child.failures + 1
        wait = min(0.5 * 2**child.failures, LONGEST_BACKOFF_S)
        child.restart_at = now + wait
        how = exit_words(child.process.returncode)
        self.say(f"{child.program.name} ended ({how}); starting it again. Log: {child.log}")
        _kill_group(child.process.pid)  # what it started in its own group goes with it

    def stop(self) -> None:
        """End everything within TERMINATE_S and a little."""
        first = [child for child in self.children if not child.program.last]
        last = [child for child in self.children if child.program.last]
        deadline = time.monotonic() + TERMINATE_S
        _terminate(first, deadline)
        _terminate(last, max(deadline, time.monotonic() + 0.5))
        self.end_orphans()

    def end_orphans(self) -> None:
        """Kill and reap every child process that is not one of our programs, until none is left."""
        self.orphans_ended_at = time.monotonic()
        ours = {child.process.pid for child in self.children if child.process.returncode is None}
        for _ in range(100):
            orphans = [pid for pid in _children_of(os.getpid()) if pid not in ours]
            if not orphans:
                return
            for pid in orphans:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def exit_words(status: int) -> str:
    return f"exit {status}" if status >= 0 else f"killed by {signal.Signals(-status).name}"


def _spawn(program: Program, log: Path, folder: Path) -> subprocess.Popen[bytes]:
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists() and log.stat().st_size > LOG_BYTES:
        log.replace(log.with_suffix(".log.1"))
    parent = os.getpid()
    with log.open("ab") as output:
        return subprocess.Popen(
            program.argv,
            cwd=folder,
            env=program.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=lambda: _die_with(parent),
        )


def _die_with(parent: int) -> None:
    """In the child, before it becomes the program: be killed when the parent is gone."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def _terminate(children: list[Child], deadline: float) -> None:
    for child in children:
        if child.alive:
            child.process.terminate()
    for child in children:
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.process.wait(max(0.0, deadline - time.monotonic()))
        _kill_group(child.process.pid)
        child.process.wait()


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _children_of(parent: int) -> Iterator[int]:
    """Direct children, by /proc; none where there is no /proc."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            fields = entry.read_text().rpartition(")")[2].split()
            if int(fields[1]) == parent:
                yield int(entry.parent.name)
