"""`manage.py up` as a real process, from its first line to the last."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from django.conf import settings

from tests.ports import free_port

PATIENCE_S = 90.0


class Up:
    """One `up` on a data folder of its own."""

    def __init__(self, data: Path, *arguments: str, port: int | None = None) -> None:
        self.data = data
        self.port = port or free_port()
        environment = {**os.environ, "WARPDECK_DATA": str(data)}
        environment.pop("REDIS_URL")
        self.process = subprocess.Popen(
            [sys.executable, "manage.py", "up", "--port", str(self.port), *arguments],
            cwd=settings.BASE_DIR,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def ready(self) -> Up:
        until(lambda: "Ctrl-C stops everything" in self.output or self.process.poll() is not None)
        assert self.process.poll() is None, self.output
        return self

    def ended(self) -> int:
        status = self.process.wait(PATIENCE_S)
        self._reader.join(5)
        return status

    def family(self) -> dict[int, str]:
        """Every process that descends from `up` now, itself too: number → when it was started."""
        processes = dict(_processes())
        family = {self.process.pid}
        for _ in processes:  # as many rounds as the tree could be deep
            grown = family | {pid for pid, (parent, _) in processes.items() if parent in family}
            if grown == family:
                break
            family = grown
        return {pid: processes[pid][1] for pid in family if pid in processes}

    def words(self, family: dict[int, str]) -> str:
        """The command lines of processes, for a look at what is among them."""
        found = []
        for pid in family:
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " "))
        return "\n".join(found)

    def get(self, path: str) -> http.client.HTTPResponse:
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        client.request("GET", path)
        return client.getresponse()


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """number → (parent, time of start) of everything that runs; zombies do not run."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = entry.read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                yield int(entry.parent.name), (int(fields[1]), fields[19])


def survivors(family: dict[int, str]) -> list[int]:
    now = dict(_processes())
    return [pid for pid, start in family.items() if pid in now and now[pid][1] == start]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


class Start(Protocol):
    def __call__(self, data: Path, *arguments: str, port: int | None = None) -> Up: ...


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Starts an `up` that is gone when the tests are over, whatever becomes of them."""
    started: list[Up] = []

    def start_one(data: Path, *arguments: str, port: int | None = None) -> Up:
        started.append(Up(data, *arguments, port=port))
        return started[-1]

    yield start_one
    for up in started:
        up.process.terminate()
    for up in started:
        up.ended()


@pytest.fixture(scope="module")
def running(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Up:
    return start(tmp_path_factory.mktemp("up") / "data").ready()


def test_the_link_signs_in_once(running: Up) -> None:
    link = re.search(rf"http://127\.0\.0\.1:{running.port}(/sign-in/\S+/)", running.output)
    assert link is not None, running.output

    first = running.get(link[1])
    assert first.status == 302
    assert "sessionid" in (first.getheader("Set-Cookie") or "")

    assert running.get(link[1]).status == 410
    logs = "".join(path.read_text() for path in (running.data / "logs").glob("*.log"))
    token = link[1].split("/")[2]
    assert token not in logs
    assert token not in running.words(running.family())


def test_another_link_comes_from_the_command_line(running: Up) -> None:
    environment = {**os.environ, "WARPDECK_DATA": str(running.data)}
    printed = subprocess.run(
        [sys.executable, "manage.py", "sign_in_link"],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()

    address = f"http://127.0.0.1:{running.port}"
    assert printed.startswith(f"{address}/sign-in/")
    assert running.get(printed.removeprefix(address)).status == 302


def test_a_second_instance_on_the_folder_is_refused(running: Up, start: Start) -> None:
    second = start(running.data)

    assert second.ended() == 1
    assert f"already runs on the data folder {running.data}" in second.output
    assert f"process {running.process.pid}" in second.output
    assert running.get("/sign-in/").status == 200


def test_a_taken_port_is_refused_with_the_remedy(running: Up, start: Start, tmp_path: Path) -> None:
    second = start(tmp_path / "data", port=running.port)

    assert second.ended() == 1
    assert f"port {running.port} on 127.0.0.1 cannot be used" in second.output
    assert "--port" in second.output


def test_a_program_that_dies_is_started_again(running: Up) -> None:
    web = pid_of(running, "uvicorn")
    os.kill(web, signal.SIGKILL)

    until(lambda: "web ended (killed by SIGKILL)" in running.output)
    until(lambda: answers(running))
    assert pid_of(running, "uvicorn") != web


def answers(up: Up) -> bool:
    try:
        return up.get("/sign-in/").status == 200
    except OSError:
        return False


def pid_of(up: Up, word: str) -> int:
    children = Path(f"/proc/{up.process.pid}/task/{up.process.pid}/children").read_text().split()
    for pid in children:
        if word in Path(f"/proc/{pid}/cmdline").read_text():
            return int(pid)
    raise AssertionError(f"no {word} among the children")


def test_when_valkey_is_killed_the_run_goes_on(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data", "--demo").ready()
    until(lambda: evaluations(up) >= 1)

    os.kill(pid_of(up, "valkey-server"), signal.SIGKILL)
    done = evaluations(up)

    until(lambda: "valkey ended (killed by SIGKILL)" in up.output)
    until(lambda: evaluations(up) >= done + 2)


def evaluations(up: Up) -> int:
    with contextlib.closing(sqlite3.connect(up.data / "warpdeck.sqlite3", timeout=20)) as database:
        return int(database.execute("select evaluations from runs_run").fetchone()[0])


def test_sigterm_ends_everything(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data", "--demo").ready()
    assert re.search(r"softmax run 1, queued:\n  http://\S+/runs/1/\n", up.output)
    until(lambda: "zygote" in up.words(up.family()))  # an evaluation is under way
    family = up.family()

    up.process.send_signal(signal.SIGTERM)

    assert up.ended() == 0, up.output
    assert "nothing of it is left running" in up.output
    assert survivors(family) == []
    assert not (up.data / "valkey.sock").exists()


def test_when_up_itself_is_killed_nothing_outlives_it(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data").ready()
    family = up.family()
    assert len(family) >= 6

    up.process.kill()

    until(lambda: survivors(family) == [])
    again = start(up.data).ready()
    again.process.send_signal(signal.SIGINT)
    assert again.ended() == 0


def test_a_folder_that_cannot_be_written_is_refused_with_the_remedy(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")

    up = start(tmp_path / "file" / "data")

    assert up.ended() == 1
    assert "is not writable (Not a directory)" in up.output
    assert "Set WARPDECK_DATA" in up.output


def test_an_open_address_needs_the_names_it_answers_to(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data", "--host", "0.0.0.0")

    assert up.ended() == 1
    assert "Set WARPDECK_HOSTS" in up.output


def test_an_open_address_with_its_names_is_served_under_both(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPDECK_HOSTS", "deck.example")

    up = start(tmp_path / "data", "--host", "0.0.0.0").ready()

    assert f"http://deck.example:{up.port}/sign-in/" in up.output
    assert up.get("/sign-in/").status == 200


def test_an_unknown_problem_is_refused_before_anything_starts(start: Start, tmp_path: Path) -> None:
    up = start(tmp_path / "data", "--run", "soft-max")

    assert up.ended() == 1
    assert "problem: no problem is called 'soft-max'" in up.output
    assert "softmax" in up.output
