"""The sandbox by itself: what is in sight, what is refused, what is cleaned up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import processes, sandbox, seccomp

isolated = pytest.mark.skipif(
    not sandbox.isolation().usable, reason=f"no bubblewrap: {sandbox.isolation().sentence}"
)
EVERY_CALL = """
import ctypes, errno, platform
from runner import seccomp
libc = ctypes.CDLL(None, use_errno=True)
column = seccomp.ARCHITECTURES[platform.machine()].column
assert seccomp.install()
for name, numbers in seccomp.REFUSED.items():
    assert libc.syscall(numbers[column], -1, -1, -1, -1, -1, -1) == -1, name
    assert ctypes.get_errno() == errno.EPERM, (name, errno.errorcode[ctypes.get_errno()])
"""
DAILY_LIFE = """
import asyncio, multiprocessing, os, subprocess, threading
from runner import seccomp
assert seccomp.install()

def double(number):
    return 2 * number

thread = threading.Thread(target=double, args=(1,))
thread.start()
thread.join()
assert subprocess.run(["echo", "x"], capture_output=True, check=True).stdout == b"x\\n"
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.map(double, [1, 2]) == [2, 4]
asyncio.run(asyncio.sleep(0))
os.sched_setaffinity(0, os.sched_getaffinity(0))
"""
THREE_GENERATIONS = """
import os, time
from runner import sandbox
sandbox.adopt_orphans()
for _ in range(3):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            os.fork()
            os.write(writing, b"x")
            time.sleep(1000)
        os._exit(0)
    for _ in range(2):
        os.read(reading, 1)
print(sandbox.kill_descendants())
try:
    os.waitpid(-1, 0)
except ChildProcessError:
    print("alone")
"""
OPEN_FOR_WRITING = """
import contextlib, os, sys
for folder, _, names in os.walk(sys.argv[1]):
    if folder.startswith("/proc/1") and os.getuid() != 0:
        continue  # this process itself; a zygote's belong to root, since it is sealed
    for path in (os.path.join(folder, name) for name in names):
        if os.path.isfile(path) and not os.path.islink(path) and os.access(path, os.W_OK):
            with contextlib.suppress(OSError):
                open(path, "r+").close()
                print(path)
"""


def run_python(program: str) -> str:
    """The output of a program in an interpreter of its own; raises where it fails."""
    environment = {**os.environ, "PYTHONPATH": str(sandbox.ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_inside(folder: Path, *argv: str, writable: bool = False) -> str:
    """The output of a command in the sandbox."""
    return processes.run(
        sandbox.command(list(argv), folder, writable=writable),
        deadline_s=30,
        output_bytes=100_000,
        environment=sandbox.environment(folder, {}),
    ).output


def test_every_listed_call_is_refused() -> None:
    run_python(EVERY_CALL)


def test_threads_processes_pools_and_event_loops_work_behind_the_filter() -> None:
    run_python(DAILY_LIFE)


def test_a_number_stands_for_one_call_only() -> None:
    tables = seccomp.REFUSED | seccomp.OF_A_PROCESS
    for architecture in seccomp.ARCHITECTURES.values():
        numbers = [row[architecture.column] for row in tables.values()]
        numbers += [architecture.clone, architecture.clone3]
        numbers += [architecture.socket, architecture.socketpair, architecture.seccomp]
        assert len(set(numbers)) == len(numbers)


@isolated
def test_only_named_folders_are_in_sight(tmp_path: Path) -> None:
    named = {Path(name).parts[1] for name in sandbox.SYSTEM} | {"proc", "dev", "tmp"}
    own = {Path(sys.prefix), Path(sys.base_prefix), sandbox.ROOT, Path.home(), tmp_path}
    own |= {Path("/var/tmp"), *sandbox._tools()}
    seen = set(run_inside(tmp_path, "ls", "/").split())
    assert seen <= named | {path.parts[1] for path in own}
    assert "run" not in seen
    assert set(run_inside(tmp_path, "ls", "/etc").split()) <= {
        Path(name).name for name in sandbox.SYSTEM
    }


@isolated
def test_the_data_folder_is_hidden_even_within_a_folder_that_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, libraries = tmp_path / "tools" / "data", tmp_path / "tools"
    data.mkdir(parents=True)
    (data / "db.sqlite3").write_text("opensesame")
    (libraries / "lib.so").write_text("library")
    monkeypatch.setenv("WARPDECK_DATA", str(data))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    folder = tmp_path / "work"
    folder.mkdir()
    assert run_inside(folder, "cat", str(libraries / "lib.so")) == "library"
    assert "No such file" in run_inside(folder, "cat", str(data / "db.sqlite3"))


@isolated
def test_the_work_folder_is_read_only_unless_a_compiler_writes_there(tmp_path: Path) -> None:
    assert "Read-only file system" in run_inside(tmp_path, "touch", "evil")
    assert run_inside(tmp_path, "touch", "artifact", writable=True) == ""
    assert [path.name for path in tmp_path.iterdir()] == ["artifact"]


@isolated
def test_no_capability_is_left_inside(tmp_path: Path) -> None:
    status = run_inside(tmp_path, "cat", "/proc/self/status")
    held = dict(line.split(":\t") for line in status.splitlines() if line.startswith("Cap"))
    assert {held[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {"0" * 16}
    assert "NoNewPrivs:\t1" in status


@isolated
@pytest.mark.parametrize("path", ["/proc", "/sys/devices", "/dev", "/usr"])
def test_nothing_of_the_kernel_or_the_system_can_be_opened_for_writing(
    tmp_path: Path, path: str
) -> None:
    (tmp_path / "walk.py").write_text(OPEN_FOR_WRITING)
    assert run_inside(tmp_path, sys.executable, "-S", "walk.py", path) == ""


def test_without_bubblewrap_the_sentence_says_so_first(tmp_path: Path) -> None:
    for tool in ("cat", "g++"):
        (tmp_path / tool).symlink_to(f"/usr/bin/{tool}")
    program = (
        f"import os; os.environ['PATH'] = '{tmp_path}'\n"
        "from runner import sandbox\n"
        "found = sandbox.isolation()\n"
        "print(found.usable, found.sentence)"
    )
    words = "False no network or file-system isolation (bwrap: not installed)"
    assert run_python(program).startswith(words)


def test_a_tree_that_left_its_sessions_is_killed_and_counted() -> None:
    assert run_python(THREE_GENERATIONS).split() == ["9", "alone"]


def test_a_folder_is_emptied_of_deep_closed_and_linked_folders(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "kept").write_text("not ours")
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").write_text("words")
    (folder / "closed" / "link").symlink_to(outside)
    (folder / "closed").chmod(0)
    (folder / "log").write_text("ours")
    deep = os.open(folder, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=deep)
        below = os.open("deeper", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    sandbox.empty(folder, keep=frozenset({"log"}))
    assert os.listdir(folder) == ["log"]
    assert os.listdir(outside) == ["kept"]
