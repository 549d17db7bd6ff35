"""The lease: one holder at a time on a device, and none after the holder's death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.evaluate.lease import lease, path_of
from runner.processes import Cancelled
from runner.sandbox import ROOT

HOLDER = """
import sys, time
from runner.evaluate.lease import lease
with lease(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _own_leases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPDECK_LEASES", str(tmp_path))


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lease of `device-1`."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", HOLDER, "device-1"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_held_device_cannot_be_leased(holder: subprocess.Popen[str]) -> None:
    cancel = threading.Event()
    threading.Timer(0.2, cancel.set).start()
    with pytest.raises(Cancelled), lease("device-1", cancel=cancel):
        pytest.fail("two holders at once")


def test_another_device_is_free(holder: subprocess.Popen[str]) -> None:
    cancel = threading.Event()
    cancel.set()
    with lease("device-2", cancel=cancel):
        assert path_of("device-2").exists()


def test_the_death_of_the_holder_releases_the_device(holder: subprocess.Popen[str]) -> None:
    threading.Timer(0.1, os.kill, (holder.pid, signal.SIGKILL)).start()
    with lease("device-1"):
        assert holder.wait() == -signal.SIGKILL


def test_two_threads_exclude_each_other() -> None:
    order: list[str] = []
    first_in = threading.Event()

    def second() -> None:
        first_in.wait()
        with lease("device-1"):
            order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    with lease("device-1"):
        first_in.set()
        thread.join(0.1)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_a_uuid_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    assert path_of("../../etc/passwd").parent == tmp_path


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    path_of("device-1").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic links"), lease("device-1"):
        pytest.fail("followed a link")
