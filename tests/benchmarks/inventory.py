"""What there is of this process on the machine: to be compared before and after.

Counts things by name, so that a process or file that was replaced by its like is no difference. It
judges only what can be ours: on a shared machine others start processes and make files too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
SETTLE_S = 5.0  # a killed tree is gone within milliseconds, a GPU's memory a little later
POLL_S = 0.1
RANDOM = re.compile(r"(?<=-)[a-z0-9_]{8}(?=/|$)")  # of tempfile
PAGE_KIB = os.sysconf("SC_PAGE_SIZE") // 1024
ZYGOTE = "runner.evaluate.zygote"
GPU_SLACK_MIB = 16  # the driver's own books; a forgotten context alone holds hundreds
GROWTH_LIMIT_KIB = 2048
Inventory = dict[str, Counter[str]]


@dataclass(frozen=True)
class Process:
    pid: int
    parent: int
    name: str
    zombie: bool
    started: int  # in clock ticks since the machine started

    @property
    def label(self) -> str:
        return f"{self.name} (ended, not collected)" if self.zombie else self.name


@dataclass(frozen=True)
class Difference:
    """One row of an inventory, before and after; `more` is what there was not before."""

    what: str
    before: Counter[str]
    after: Counter[str]
    slack: int = 0

    @property
    def more(self) -> Counter[str]:
        found = self.after - self.before
        return Counter({name: count for name, count in found.items() if count > self.slack})

    def document(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "before": dict(self.before),
            "after": dict(self.after),
            "more": dict(self.more),
        }


@dataclass(frozen=True)
class Growth:
    """The resident memory of a process over evaluations: medians of its first and last fifth."""

    what: str
    samples: int
    first_kib: float
    last_kib: float
    slope_kib: float  # an evaluation, by least squares

    @classmethod
    def of(cls, what: str, kib: Sequence[float]) -> Growth:
        fifth = max(1, len(kib) // 5)
        slope = statistics.linear_regression(range(len(kib)), kib).slope if len(kib) > 1 else 0.0
        first, last = statistics.median(kib[:fifth]), statistics.median(kib[-fifth:])
        return cls(what, len(kib), first, last, slope)

    @property
    def leaked(self) -> bool:
        return self.last_kib - self.first_kib > GROWTH_LIMIT_KIB


def adopt_orphans(adopt: bool = True) -> None:
    """Whoever loses its parent below us comes to us, whatever it did: below us is then all."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0)


def collect_orphans() -> None:
    """What the first process of a machine does for adopted ones that have ended."""
    for process in processes().values():
        if process.zombie and process.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)


def processes() -> dict[int, Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            head, _, tail = path.read_text().rpartition(")")
            fields, pid = tail.split(), int(path.parent.name)
            name = head.partition("(")[2]
            found[pid] = Process(pid, int(fields[1]), name, fields[0] == "Z", int(fields[19]))
    return found


def below(pid: int, every: dict[int, Process]) -> list[Process]:
    """All descendants of a process."""
    direct = [process for process in every.values() if process.parent == pid]
    return direct + [deeper for child in direct for deeper in below(child.pid, every)]


def zygotes() -> dict[str, int]:
    """Role → process id of the zygotes below us, and of children that outlive an evaluation.

    A child has its zygote's command line. Bubblewrap around a zygote has it too, and is not meant.
    """
    roles = {}
    every = below(os.getpid(), processes())
    for process in every:
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
            if ZYGOTE in words and "bwrap" not in words[0]:
                roles[process.pid] = words[words.index("--role") + 1]
    parents = {process.pid: process.parent for process in every}
    return {
        f"{role}'s child" if parents[pid] in roles else role: pid for pid, role in roles.items()
    }


def resident_kib(pid: int) -> float | None:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_KIB
    except OSError:
        return None


def take(gpu: str = "") -> Inventory:
    """Everything of ours that should not grow. `gpu` is a GPU's UUID, or empty for none."""
    found = {
        "processes below": Counter(p.label for p in below(os.getpid(), processes())),
        "descriptors": descriptors(),
        "threads": Counter(thread.name for thread in threading.enumerate()),
        "temporary files": files(Path(tempfile.gettempdir())),
        "System V objects": Counter({k: n for k in ("shm", "sem", "msg") if (n := system_v(k))}),
    }
    if gpu:
        found["GPU memory"] = Counter({"MiB": gpu_memory_mib(gpu)})
        found["GPU processes"] = Counter({"process": len(smi("compute-apps", "pid", gpu))})
    return found


def settled(before: Inventory, look: Callable[[], Inventory]) -> list[Difference]:
    """The differences that stay: what is on its way out gets the time to leave."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        collect_orphans()
        found = compare(before, look())
        if not any(row.more for row in found) or time.monotonic() > deadline:
            return found
        time.sleep(POLL_S)


def compare(before: Inventory, after: Inventory) -> list[Difference]:
    slack = {"GPU memory": GPU_SLACK_MIB}
    return [Difference(what, before[what], after[what], slack.get(what, 0)) for what in before]


def descriptors() -> Counter[str]:
    """Open descriptors by what they are: `socket`, `pipe`, `anon_inode`, or the file's path."""
    found: Counter[str] = Counter()
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists them is closed by now
            target = os.readlink(f"/proc/self/fd/{entry}")
            found[RANDOM.sub("*", target) if target.startswith("/") else target.split(":")[0]] += 1
    return found


def files(folder: Path) -> Counter[str]:
    """Every file and folder inside, with the random part of its name left out."""
    paths = (str(path.relative_to(folder)) for path in folder.rglob("*"))
    return Counter(RANDOM.sub("*", path) for path in paths)


def system_v(kind: str) -> int:
    """Objects of a kind in our namespace: the table has one line for each, below its head."""
    try:
        return len(Path(f"/proc/sysvipc/{kind}").read_text().splitlines()) - 1
    except OSError:
        return 0


def gpu_memory_mib(uuid: str) -> int:
    rows = smi("gpu", "memory.used", uuid)
    if not rows:
        raise RuntimeError("nvidia-smi does not say how much memory is in use")
    return int(rows[0])


def smi(query: str, field: str, uuid: str) -> list[str]:
    argv = [shutil.which("nvidia-smi") or "nvidia-smi", f"--query-{query}={field}"]
    argv += ["--format=csv,noheader,nounits", f"--id={uuid}"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def elsewhere(since: int) -> Counter[str]:
    """Processes that started since that tick, still run, and are not below us."""
    every = processes()
    mine = {process.pid for process in below(os.getpid(), every)} | {os.getpid()}
    return Counter(
        p.name for p in every.values() if p.started >= since and p.pid not in mine and not p.zombie
    )


def ticks() -> int:
    """Now, in the unit of Process.started."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))
