"""What an analysis or a simulation leaves behind: its resident station, and nothing else."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.analysis import station
from runner.analysis.analyze import AnalysisSpec, analyze
from runner.analysis.findings import Analysis, AnalysisVerdict
from runner.analysis.simulate import SimulationSpec, simulate
from tests.runner.test_evaluate_processes import descendants_of

KERNEL = """
import os, signal, time
import torch
import triton
import triton.language as tl

@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    c = tl.load(a_ptr + i, mask=i < N) + tl.load(b_ptr + i, mask=i < N)
    tl.store(c_ptr + i, c, mask=i < N)

def run(a, b):
    open("dropped", "w").write("a file in the work folder")
    BEFORE
    c = torch.empty_like(a)
    add[(triton.cdiv(a.numel(), 8192),)](a, b, c, a.numel(), BLOCK=8192)
    return c
"""
LINGERS = "if os.fork() == 0: os.setsid(); signal.signal(signal.SIGTERM, signal.SIG_IGN); \
time.sleep(600)"
ENDINGS = {
    "passes": ("pass", AnalysisVerdict.clean),
    "leaves a process": (LINGERS, AnalysisVerdict.clean),
    "raises": ("raise ValueError('no')", AnalysisVerdict.error),
    "crashes": (f"{LINGERS}\n    os.kill(os.getpid(), signal.SIGSEGV)", AnalysisVerdict.error),
    "hangs": (f"{LINGERS}\n    time.sleep(600)", AnalysisVerdict.incomplete),
}
Judge = Callable[[str], Analysis]


def analysed(source: str) -> Analysis:
    return analyze(AnalysisSpec("vector_add", source, deadline_s=3.0)).analysis


def simulated(source: str) -> Analysis:
    return simulate(SimulationSpec("vector_add", source, deadline_s=3.0))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the stations of this test keep their work: started after it and ended before it."""
    station.stop()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    yield tmp_path
    station.stop()


def left(folder: Path) -> tuple[set[int], set[Path], int]:
    """Processes below this one, files in its work folders, and how many files it has open."""
    return (
        set(descendants_of(os.getpid())),
        set(folder.rglob("*")),
        len(os.listdir("/proc/self/fd")),
    )


@pytest.mark.parametrize("judge", [analysed, simulated])
def test_nothing_is_left_however_a_candidate_ends_but_the_resident_station(
    judge: Judge, folder: Path
) -> None:
    judge(KERNEL.replace("BEFORE", "pass"))  # the station starts, and stays
    resident = left(folder)
    assert resident[0]
    assert resident[1]
    for ending, (statement, verdict) in ENDINGS.items():
        found = judge(KERNEL.replace("BEFORE", statement))
        assert found.verdict is verdict, (ending, found.reason)
        deadline = time.monotonic() + 2  # a killed process takes a moment to be gone
        while (now := left(folder)) != resident and time.monotonic() < deadline:
            time.sleep(0.01)
        assert now == resident, ending


def test_not_even_the_station_is_left_once_it_is_stopped(folder: Path) -> None:
    before = left(folder)
    for judge in (analysed, simulated):
        judge(KERNEL.replace("BEFORE", "pass"))
    station.stop()
    assert left(folder) == before
