"""The trusted processes stay from one evaluation to the next, a candidate's never does."""

from __future__ import annotations

import os
import signal
import time

import pytest

from runner.evaluate import keeper
from runner.results import Verdict
from runner.spec import Limits
from tests.runner.candidates import PYTHON, judge
from tests.runner.test_evaluate_processes import children_of

PATIENCE_S = 20.0


def kept() -> dict[str, list[int]]:
    """The children at rest below the zygotes of this process, by role."""
    return {
        kind.role: children_of(zygote.process.pid)
        for kind, zygote in keeper._zygotes.items()
        if kind.role != "candidate"
    }


@pytest.fixture(autouse=True)
def no_zygotes_from_before() -> None:
    keeper.stop_all()


def test_a_folder_removed_twice_closes_no_file_of_another() -> None:
    folder = keeper.WorkFolder()
    folder.remove()
    other = keeper.WorkFolder()  # its lock takes the number that has just become free
    try:
        folder.remove()
        keeper.sweep()
        assert other.path.is_dir()
    finally:
        other.remove()


def test_the_trusted_processes_serve_the_next_evaluation() -> None:
    judge(PYTHON, "triton")
    first = kept()
    assert [len(pids) for pids in first.values()] == [1, 1]
    assert judge(PYTHON, "triton").verdict is Verdict.passed
    assert kept() == first


def test_no_candidate_is_there_when_its_evaluation_has_ended() -> None:
    judge(PYTHON, "triton")
    (zygote,) = (z for kind, z in keeper._zygotes.items() if kind.role == "candidate")
    below = [pid for child in children_of(zygote.process.pid) for pid in children_of(child)]
    assert below == []


def test_a_failing_candidate_leaves_the_trusted_processes_as_they_are() -> None:
    judge(PYTHON, "triton")
    first = kept()
    hangs = "def run(x):\n    while True: pass\n"
    assert judge(hangs, "triton", limits=Limits(deadline_s=1)).verdict is Verdict.timeout
    assert kept() == first


def test_a_trusted_process_that_has_died_at_rest_is_replaced() -> None:
    judge(PYTHON, "triton")
    first = kept()
    for pids in first.values():
        os.kill(pids[0], signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE_S
    while any(kept().values()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert judge(PYTHON, "triton").verdict is Verdict.passed
    assert all(kept()[role] != pids for role, pids in first.items())


def test_after_so_many_evaluations_a_trusted_process_is_fresh() -> None:
    judge(PYTHON, "triton")
    first = kept()
    for kind, zygote in keeper._zygotes.items():
        if kind.role == "referee" and zygote.kept is not None:
            zygote.kept.uses = keeper.RESIDENT_USES - 1
    judge(PYTHON, "triton")
    judge(PYTHON, "triton")
    assert kept()["referee"] != first["referee"]
    assert kept()["baseline"] == first["baseline"]
