"""Processes of an evaluation: contained while they live, gone when it ends, whoever dies first."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from runner import sandbox
from runner.evaluate import Cancelled, evaluate, keeper
from runner.results import Evaluation, Verdict
from runner.spec import EvaluationSpec, Limits
from tests.runner.candidates import PYTHON, cpp, failed_checks, judge

PATIENCE_S = 20.0  # for the kernel and this machine to take a killed tree apart

ESCAPE = """
#include <sys/prctl.h>
struct Escape {
    Escape() {
        if (fork() == 0) {
            setsid();
            if (fork() == 0) {
                prctl(PR_SET_NAME, "ESCAPEE");
                for (;;) pause();
            }
            _exit(0);
        }
    }
};
static Escape escape;
"""
HANG = "import torch\ndef run(x):\n    while True: pass\n"
isolated = pytest.mark.skipif(
    not sandbox.isolation().usable, reason=f"no bubblewrap: {sandbox.isolation().sentence}"
)


def processes_named(name: str) -> list[int]:
    """Process ids with this name in /proc, in every namespace below ours."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == name:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_until_gone(pids: list[int]) -> list[int]:
    """Those still alive after our patience; a zombie counts as gone."""
    deadline = time.monotonic() + PATIENCE_S
    while (alive := [pid for pid in pids if is_alive(pid)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children_of(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def descendants_of(pid: int) -> list[int]:
    direct = children_of(pid)
    return direct + [below for child in direct for below in descendants_of(child)]


def test_a_process_that_forks_twice_and_leaves_its_session_is_killed() -> None:
    name = f"esc{os.getpid()}"
    evaluation = judge(cpp(before=ESCAPE.replace("ESCAPEE", name)))
    assert evaluation.verdict is Verdict.passed
    assert failed_checks(evaluation) == ["process_tree_clean"]
    assert processes_named(name) == []


def test_a_cancelled_evaluation_raises_and_leaves_no_process() -> None:
    judge(PYTHON, "triton")  # the zygotes stay; what an evaluation starts must not
    before = set(descendants_of(os.getpid()))
    cancel, phases = threading.Event(), []

    def progress(phase: str) -> None:
        phases.append(phase)
        if phase.startswith("checking"):
            threading.Timer(0.2, cancel.set).start()

    spec = EvaluationSpec("softmax", HANG, "triton", case_set="host-quick")
    with pytest.raises(Cancelled):
        evaluate(spec, cancel=cancel, progress=progress)
    assert phases[0] == "compiling"
    assert set(descendants_of(os.getpid())) <= before


def test_a_zygote_that_was_killed_is_replaced() -> None:
    judge(PYTHON, "triton")
    for zygote in list(keeper._zygotes.values()):
        os.kill(zygote.process.pid, signal.SIGKILL)
    assert judge(PYTHON, "triton").verdict is Verdict.passed


def test_a_time_out_leaves_the_next_evaluation_unharmed() -> None:
    assert judge(HANG, "triton", limits=Limits(deadline_s=0.5)).verdict is Verdict.timeout
    assert judge(PYTHON, "triton").verdict is Verdict.passed


def test_two_threads_evaluate_one_after_the_other() -> None:
    results: list[Evaluation] = []
    threads = [
        threading.Thread(target=lambda: results.append(judge(PYTHON, "triton"))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(r.verdict, r.reason) for r in results] == [(Verdict.passed, "")] * 2


def test_the_thread_that_started_the_zygotes_may_end() -> None:
    keeper.stop_all()
    thread = threading.Thread(target=judge, args=(PYTHON, "triton"))
    thread.start()
    thread.join()
    zygotes = [zygote.process.pid for zygote in keeper._zygotes.values()]
    assert judge(PYTHON, "triton").verdict is Verdict.passed
    assert [zygote.process.pid for zygote in keeper._zygotes.values()] == zygotes


def test_nothing_of_an_evaluation_stays_behind() -> None:
    judge(cpp())
    descriptors = set(os.listdir("/proc/self/fd"))
    mine = sorted(keeper.owned_folders())
    judge(cpp())
    judge(cpp("std::abort();"))
    judge("nonsense")
    assert set(os.listdir("/proc/self/fd")) == descriptors
    assert sorted(keeper.owned_folders()) == mine
    leftovers = [path for folder in mine for path in folder.glob("evaluation-*")]
    assert leftovers == []


def test_stopping_the_zygotes_removes_their_folders_and_processes() -> None:
    keeper.stop_all()
    others = set(descendants_of(os.getpid()))  # such as a resource tracker of multiprocessing
    judge(PYTHON, "triton")
    pids = [pid for pid in descendants_of(os.getpid()) if pid not in others]
    folders = keeper.owned_folders()
    assert pids
    assert folders
    keeper.stop_all()
    assert wait_until_gone(pids) == []
    assert [folder for folder in folders if folder.exists()] == []


DRIVER = """
import sys
from tests.runner.candidates import judge
from runner.spec import Limits
judge(open(sys.argv[1]).read(), "triton", limits=Limits(deadline_s=300))
"""


def test_the_death_of_the_parent_ends_everything_below_it(tmp_path: Path) -> None:
    marker = tmp_path / "candidate.txt"
    source = tmp_path / "hang.py"
    source.write_text("import torch\nprint('up', flush=True)\n" + HANG)
    environment = {**os.environ, "PYTHONPATH": str(sandbox.ROOT), "TMPDIR": str(tmp_path)}
    environment["WARPDECK_LEASES"] = str(tmp_path)
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(source)],
        env=environment,
        stdout=marker.open("w"),
        cwd=sandbox.ROOT,
    )
    try:
        below = wait_for_running_candidate(driver.pid)
    finally:
        driver.kill()
        driver.wait()
    assert wait_until_gone(below) == []


def wait_for_running_candidate(pid: int) -> list[int]:
    """All processes below `pid` once one of them burns processor time in the hang."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        below = descendants_of(pid)
        for child in below:
            if is_alive(child) and _session_leader(child) and len(below) >= 4:
                time.sleep(0.3)
                return descendants_of(pid)
        time.sleep(0.05)
    raise AssertionError("the candidate never started")


def _session_leader(pid: int) -> bool:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return int(fields[3]) == pid and not children_of(pid)


def test_folders_of_a_dead_parent_are_swept_away(tmp_path: Path) -> None:
    abandoned = Path(tempfile.mkdtemp(prefix=keeper.FOLDER_PREFIX))
    (abandoned / "candidate.so").write_text("left by a kill")
    keeper.sweep()
    assert not abandoned.exists()


def test_the_parent_never_imports_torch() -> None:
    program = (
        "import sys; from tests.runner.candidates import judge, PYTHON;"
        "print(judge(PYTHON, 'triton').verdict.value, 'torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(sandbox.ROOT)}
    finished = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert finished.stdout.split() == ["passed", "False"]


def test_a_candidate_sees_no_secret_of_its_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_API_KEY", "opensesame")
    monkeypatch.setenv("DATABASE_URL", "postgres://opensesame")
    keeper.stop_all()
    source = f"import os\nprint(sorted(os.environ.items()))\n{PYTHON}"
    evaluation = judge(source, "triton")
    assert "OMP_NUM_THREADS" in evaluation.output
    assert "opensesame" not in evaluation.output


@isolated
def test_a_candidate_has_no_network() -> None:
    source = f"import socket\nsocket.create_connection(('127.0.0.1', 22), 2)\n{PYTHON}"
    evaluation = judge(source, "triton")
    assert evaluation.verdict is Verdict.crashed
    interfaces = judge(f"import socket\nprint(socket.if_nameindex())\n{PYTHON}", "triton")
    assert interfaces.output.strip() == "[(1, 'lo')]"


@isolated
@pytest.mark.parametrize("folder", ["/", "/usr", str(sandbox.ROOT), str(Path.home()), "/tmp"])
def test_a_candidate_can_write_only_temporary_files(folder: str) -> None:
    source = f"open('{folder}/evil', 'w')\n{PYTHON}"
    evaluation = judge(source, "triton")
    assert evaluation.verdict is Verdict.crashed
    assert "Read-only file system" in evaluation.reason
    temporary = f"import tempfile\ntempfile.TemporaryFile().write(b'x')\n{PYTHON}"
    assert judge(temporary, "triton").verdict is Verdict.passed


def test_a_candidate_holds_no_descriptor_but_its_channel_and_its_output() -> None:
    source = (
        "import os\n"
        "for name in sorted(os.listdir('/proc/self/fd')):\n"
        "    if os.path.exists(f'/proc/self/fd/{name}'):\n"
        f"        print(name, os.readlink(f'/proc/self/fd/{{name}}').partition(':')[0])\n{PYTHON}"
    )
    lines = judge(source, "triton").output.split("\n")
    assert lines[:4] == ["0 /dev/null", "1 pipe", "2 pipe", "3 socket"]
    assert lines[4:] == [""]


def test_a_candidate_is_killed_before_others_when_memory_runs_out() -> None:
    evaluation = judge(f"print(open('/proc/self/oom_score_adj').read())\n{PYTHON}", "triton")
    assert evaluation.output.split() == ["1000"]


@isolated
def test_a_candidate_sees_no_process_and_no_data_of_ours() -> None:
    source = (
        "import os\n"
        "print([p for p in os.listdir('/proc') if p.isdigit()].__len__() < 8)\n"
        f"print(sorted(os.listdir('{sandbox.ROOT}')))\n{PYTHON}"
    )
    lines = judge(source, "triton").output.splitlines()
    assert lines[0] == "True"
    assert "tests" not in lines[1]
    assert "webapp" not in lines[1]


def test_a_child_that_ends_as_it_is_killed_does_not_haunt_the_next(tmp_path: Path) -> None:
    keeper.stop_all()  # a zygote with no child that an earlier evaluation has left at rest
    kind = keeper.Kind("referee")
    hello = {"do": "start", "problem": "softmax", "threads": 1, "kind": "host"}
    with keeper.borrowed(kind, {}) as zygote:
        before = children_of(zygote.process.pid)
        first = zygote.fork(tmp_path, None, 1000)
        deadline = time.monotonic() + PATIENCE_S
        while not (born := set(children_of(zygote.process.pid)) - set(before)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for pid in born:
            os.kill(pid, signal.SIGKILL)
        assert wait_until_gone(list(born)) == []
        time.sleep(0.1)  # the zygote reports an end that nobody reads before the kill is sent
        assert first.end().status == -signal.SIGKILL
        second = zygote.fork(tmp_path, None, 1000)
        reply = second.ask(hello, keeper.Watch(time.monotonic() + PATIENCE_S))
        second.end()
    assert "torch" in reply.message["versions"]
