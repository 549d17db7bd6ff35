"""Candidates for the problem of one element that try to harm the machine, and what each must get.

They differ from the corpus of cheats in their aim: not a better number, but something left behind.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from runner.results import Verdict
from runner.spec import Limits

PATIENT = Limits(deadline_s=30, memory_bytes=512 << 20)  # for those that end by themselves
HOST_HANGS = Limits(deadline_s=1)
CUDA_HANGS = Limits(deadline_s=5)  # a fresh context and the kernel's start are part of it
TIMED = frozenset({Verdict.passed, Verdict.timing_disputed})
DOUBLE = "\n\ndef run(x):\n    return x * 2\n"


@dataclass(frozen=True)
class Hostile:
    """A candidate; `fails` names the integrity check that must show what it did, if it passes."""

    name: str
    source: str
    expected: frozenset[Verdict]
    limits: Limits = PATIENT
    language: str = "triton"
    fails: str = ""


HANG = "def run(x):\n    while True:\n        pass\n"
FORK_BOMB = """import os


def run(x):
    for _ in range(6):
        os.fork()
    while True:
        pass
"""
OUTPUT = "import os\n\nfor _ in range(300):\n    os.write(1, b'spam\\n' * 200_000)\n" + DOUBLE
OUT_OF_BOUNDS = (
    "#include <cstdint>\n"
    'extern "C" void one_element_fp32(const float *x, float *y, int64_t N) {\n'
    "    for (int64_t i = 0; i < 1 << 26; ++i) y[i] = x[0] * 2;\n}\n"
)
EXIT = "import os\n\nos._exit(0)\n" + DOUBLE
MEMORY = "hoard = []\n\n\ndef run(x):\n    while True:\n        hoard.append(bytearray(64 << 20))\n"
KILLS_ITS_PARENT = (
    """import os
import signal
import time

os.kill(os.getppid(), signal.SIGKILL)
time.sleep(1)
"""
    + DOUBLE
)
LEFT_OVERS = (
    """import os
import time

for _ in range(8):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                time.sleep(60)
        os._exit(0)
"""
    + DOUBLE
)
LITTER = (
    """import contextlib
import tempfile

for folder in (".", None, "/dev/shm", "/tmp", "/var/tmp"):
    with contextlib.suppress(OSError):
        for _ in range(16):
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(bytes(8 << 20))
"""
    + DOUBLE
)
CUDA_HANG = """import torch


def run(x):
    held = torch.empty(8 << 30, dtype=torch.uint8, device=x.device)
    while held is not None:
        pass
"""
CUDA_ENDLESS = """import torch


def run(x):
    torch.cuda._sleep(1 << 62)
    torch.cuda.synchronize()
    return x * 2
"""
CUDA_FAR_WRITE = """import torch
import triton
import triton.language as tl


@triton.jit
def write_far(y_ptr):
    tl.store(y_ptr + (1 << 40), 1.0)


def run(x):
    y = torch.empty_like(x)
    write_far[(1,)](y)
    torch.cuda.synchronize()
    return y
"""
CUDA_MEMORY = """import torch

hoard = []


def run(x):
    while True:
        hoard.append(torch.empty(100 * 10**9, dtype=torch.uint8, device=x.device))
"""
CUDA_EXIT = """import os

import torch


def run(x):
    held = torch.ones(4 << 30, dtype=torch.uint8, device=x.device)
    torch.cuda.synchronize()
    os._exit(len(held) & 1)
"""

TIMEOUT, CRASHED = frozenset({Verdict.timeout}), frozenset({Verdict.crashed})
OUT_OF_MEMORY = frozenset({Verdict.out_of_memory})
BOMB = frozenset({Verdict.timeout, Verdict.crashed, Verdict.tampered})
KILLED = TIMED | {Verdict.tampered}  # in bubblewrap the kill does not arrive
ANYWHERE = (
    Hostile("exit in import", EXIT, CRASHED),
    Hostile("left-over processes", LEFT_OVERS, TIMED, fails="process_tree_clean"),
    Hostile("litter", LITTER, TIMED),
    Hostile("kill of its parent", KILLS_ITS_PARENT, KILLED),
)
FLOOD = Hostile("300 MB of output", OUTPUT, TIMED, fails="output_capped")
HOST = (
    Hostile("hang", HANG, TIMEOUT, HOST_HANGS),
    Hostile("fork bomb", FORK_BOMB, BOMB, HOST_HANGS),
    FLOOD,
    Hostile("out-of-bounds write", OUT_OF_BOUNDS, CRASHED, language="cpp"),
    Hostile("memory bomb", MEMORY, OUT_OF_MEMORY),
)
CUDA = (
    Hostile("hang that holds 8 GiB of the GPU", CUDA_HANG, TIMEOUT, CUDA_HANGS),
    Hostile("fork bomb", FORK_BOMB, BOMB, CUDA_HANGS),
    FLOOD,
    Hostile("out-of-bounds write", CUDA_FAR_WRITE, CRASHED),
    Hostile("endless kernel", CUDA_ENDLESS, TIMEOUT, CUDA_HANGS),
    Hostile("100 GB of the GPU, again and again", CUDA_MEMORY, OUT_OF_MEMORY),
    Hostile("exit while it holds 4 GiB of the GPU", CUDA_EXIT, CRASHED),
)


def candidates(kind: str, *, isolated: bool) -> tuple[Hostile, ...]:
    """Those for a kind of device, in turn.

    Without bubblewrap nothing stops a candidate from writing to shared folders: the service says so
    in each result, and there is nothing to find out.
    """
    chosen = chain(HOST if kind == "host" else CUDA, ANYWHERE)
    return tuple(each for each in chosen if isolated or each.source is not LITTER)
