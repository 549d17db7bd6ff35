"""Evaluations in a row, some hostile, leave the machine as it was; and what is left is noticed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import inventory
from tests.benchmarks.inventory import Growth, Inventory

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 10.0


def soak(folder: Path, evaluations: int, every: int) -> dict[str, Any]:
    """A soak on the host, in a process of its own; raises when it wrote no report."""
    report = folder / "soak.json"
    argv = [sys.executable, "-m", "tests.benchmarks.soak", "--json", str(report)]
    argv += ["--evaluations", str(evaluations), "--every", str(every)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, Any] = json.loads(report.read_text())
    assert done.returncode == (0 if found["clean"] else 1)
    return found


def test_hostile_candidates_among_others_leave_nothing_behind(tmp_path: Path) -> None:
    found = soak(tmp_path, evaluations=20, every=5)
    assert found["leaks"] == []
    assert found["faults"] == []
    counts = {name: kind["count"] for name, kind in found["kinds"].items()}
    honest = {"honest Python": 12, "honest C++": 4, "probe": 1}
    harmful = ("hang", "fork bomb", "300 MB of output", "out-of-bounds write")
    assert counts == {**honest, **dict.fromkeys(harmful, 1)}
    assert len(found["while_it_runs"]) >= 5
    assert {row["what"] for row in found["resident_memory"]} >= {"this process", "candidate"}


@pytest.fixture
def before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inventory:
    """What there was before a test left something behind, in a temporary folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return inventory.take()


def left(before: Inventory) -> dict[str, dict[str, int]]:
    found = inventory.compare(before, inventory.take())
    return {row.what: dict(row.more) for row in found if row.more}


def test_where_nothing_was_left_nothing_is_found(before: Inventory) -> None:
    assert left(before) == {}


def test_a_process_left_behind_is_found(before: Inventory) -> None:
    process = subprocess.Popen(["sleep", "60"])  # returns when it has become `sleep`
    try:
        assert left(before) == {"processes below": {"sleep": 1}}
    finally:
        process.kill()
        process.wait()


def test_an_orphan_in_a_session_of_its_own_is_found(before: Inventory) -> None:
    inventory.adopt_orphans()
    subprocess.run(["sh", "-c", "setsid sleep 60 &"], check=True)
    try:
        until(lambda: left(before) == {"processes below": {"sleep": 1}})
    finally:
        for orphan in inventory.below(os.getpid(), inventory.processes()):
            if orphan.name == "sleep":
                os.kill(orphan.pid, signal.SIGKILL)
                os.waitpid(orphan.pid, 0)
        inventory.adopt_orphans(False)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def test_a_descriptor_left_open_is_found(before: Inventory) -> None:
    reading, writing = os.pipe()
    try:
        assert left(before) == {"descriptors": {"pipe": 2}}
    finally:
        os.close(reading)
        os.close(writing)


def test_a_thread_left_running_is_found(before: Inventory) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait, name="forgotten")
    thread.start()
    try:
        assert left(before) == {"threads": {"forgotten": 1}}
    finally:
        done.set()
        thread.join()


def test_a_file_left_behind_is_found_and_one_replaced_by_its_like_is_not(tmp_path: Path) -> None:
    first = Path(tempfile.mkdtemp(prefix="work-", dir=tmp_path))
    before = inventory.files(tmp_path)
    first.rmdir()
    second = Path(tempfile.mkdtemp(prefix="work-", dir=tmp_path))
    assert inventory.files(tmp_path) == before
    (second / "result").touch()
    assert inventory.files(tmp_path) - before == {"work-*/result": 1}


def test_memory_that_grows_with_each_evaluation_is_found() -> None:
    steady = [50_000.0 + 400 * (number % 3) for number in range(200)]
    growing = [kib + 16 * number for number, kib in enumerate(steady)]
    assert not Growth.of("parent", steady).leaked
    found = Growth.of("parent", growing)
    assert found.leaked
    assert found.slope_kib == pytest.approx(16, abs=0.1)
