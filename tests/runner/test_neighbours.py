"""Others at work on the host are seen, and our own processes are not others."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from runner.evaluate.neighbours import HostNeighbours, Sighting, running

SPIN = "while True: pass"


@pytest.fixture
def spinning() -> Iterator[int]:
    """A process that uses one processor whole."""
    process = subprocess.Popen([sys.executable, "-c", SPIN])
    time.sleep(0.2)
    yield process.pid
    process.kill()
    process.wait()


def seen(own: list[int]) -> Sighting:
    around = HostNeighbours()
    around.begin(own)
    time.sleep(1.0)
    return around.end(own)


def test_a_foreign_process_at_work_is_seen(spinning: int) -> None:
    sighting = seen([])
    assert sighting.alone is False
    assert "of the processors" in sighting.words


def test_our_own_process_at_work_is_no_neighbour(spinning: int) -> None:
    assert seen([]).share > seen([spinning]).share + 0.1


def test_a_gpu_that_is_not_there_has_no_list_of_processes() -> None:
    assert running("GPU-00000000-0000-0000-0000-000000000000") is None
