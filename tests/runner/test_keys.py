"""The keys of model providers stay with the process that asks the model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner import keys, processes
from runner.events import HarnessErrorPayload, make_event

ROOT = Path(__file__).resolve().parents[2]
PLANTED = "sk-ant-planted-7c1f0a94e2"
# Analyses and simulates kernels with a key in its own environment, looks at every process below it
# all the while, and prints what it saw: how many, which programs, and which of them had the key.
WATCHED = """
import json, os, sys, threading
from pathlib import Path
from runner.examination import LocalExaminer
from runner.analysis.analyze import AnalysisSpec
from runner.analysis.simulate import SimulationSpec

planted, mine = os.environ["ANTHROPIC_API_KEY"].encode(), Path("/proc/self/cmdline").read_bytes()
seen, leaks, done = {}, [], threading.Event()

def parents():
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            pass
    return found

def below(pid, above):
    while pid in above and pid != os.getpid():
        pid = above[pid]
    return pid == os.getpid()

def look():
    above = parents()
    for pid in above:
        if pid == os.getpid() or not below(pid, above):
            continue
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
            held = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if line == mine:
            continue  # between fork and exec it is still this very program
        seen[pid] = line.replace(b"\\0", b" ").decode(errors="replace")[:200]
        if planted in held or planted in line:
            leaks.append(seen[pid])

def watch():
    while not done.wait(0.005):
        look()

watcher = threading.Thread(target=watch)
watcher.start()
zoo, local = Path("kernels/problems/vector_add/zoo"), LocalExaminer()
verdicts = []
for path, language in ((next(zoo.glob("*.cpp")), "cpp"), (next(zoo.glob("*.py")), "triton")):
    spec = AnalysisSpec(problem="vector_add", source=path.read_text(), language=language)
    verdicts.append(local.analyze(spec).analysis.verdict)
verdicts.append(local.simulate(SimulationSpec("vector_add", path.read_text(), "triton")).verdict)
done.set()
watcher.join()
print(json.dumps({"verdicts": verdicts, "programs": sorted(set(seen.values())), "leaks": leaks}))
"""


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ANTHROPIC_API_KEY", f"{PLANTED}\n")  # as a file ends, so do some keys
    return PLANTED


def test_only_what_can_be_a_secret_is_taken_out_of_a_text(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://127.0.0.1:8099")
    monkeypatch.setenv("ANTHROPIC_AUTH_TOKEN", "short")

    told = keys.redact(f"illegal header {planted!r} for http://127.0.0.1:8099, in short")

    assert told == "illegal header '[a key, left out]' for http://127.0.0.1:8099, in short"


def test_an_environment_without_keys_has_none_of_the_provider_s_variables(planted: str) -> None:
    assert keys.without_keys({"PATH": "/bin", "ANTHROPIC_API_KEY": planted}) == {"PATH": "/bin"}
    assert keys.present()


def test_an_event_that_quotes_a_key_is_written_without_it(planted: str) -> None:
    error = HarnessErrorPayload("after event 3", f"Illegal header value b'{planted}'", planted)

    event = make_event("run", 1, "2026-01-01T00:00:00.000000+00:00", error)

    assert planted not in json.dumps(event.payload)
    assert event.decoded.error == "Illegal header value b'[a key, left out]'"


def test_a_program_that_is_run_without_an_environment_of_its_own_gets_ours_without_keys(
    planted: str,
) -> None:
    told = processes.run(["env"], deadline_s=10, output_bytes=100_000).output

    assert f"PATH={os.environ['PATH']}" in told
    assert planted not in told


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc on this machine")
def test_no_process_of_an_analysis_holds_the_key_of_the_worker_that_asked_for_it() -> None:
    pytest.importorskip("triton")
    environment = {**os.environ, "ANTHROPIC_API_KEY": PLANTED}

    told = subprocess.run(
        [sys.executable, "-c", WATCHED],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )

    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout.splitlines()[-1])
    assert any("runner.evaluate.zygote" in program for program in found["programs"])
    assert any("g++" in program or "cc1plus" in program for program in found["programs"])
    assert found["leaks"] == []
