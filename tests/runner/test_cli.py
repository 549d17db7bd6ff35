"""The command line as real processes: documents on stdout, exit statuses, Ctrl-C, archives."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest

from kernels.catalog import load_problem
from runner import console
from runner.__main__ import main
from runner.archive import read_archive
from runner.results import IntegrityCheck, Verdict, flat_json
from runner.state import RunState
from tests.runner.fakes import make_evaluation

ROOT = Path(__file__).resolve().parents[2]
KERNEL = load_problem("vector_add").kernels("cpp")[0]
Capture = pytest.CaptureFixture[str]
QUICK = ("--device", "host", "--case-set", "host-quick")


def runner(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "runner", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=180,
    )


def document(done: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(done.stdout)


def test_problems_are_one_json_document_or_a_table() -> None:
    listed = document(runner("problems", "--json"))["problems"]
    assert {"softmax", "vector_add"} <= {problem["slug"] for problem in listed}
    add = next(problem for problem in listed if problem["slug"] == "vector_add")
    assert add["settings"]["cpp"] > 1
    assert str(ROOT) not in json.dumps(listed)
    table = runner("problems").stdout.splitlines()
    assert table[0].split()[0] == "problem"
    assert any(line.startswith("vector_add ") for line in table)


def test_a_reader_that_stops_reading_is_no_error() -> None:
    listing = subprocess.Popen(
        [sys.executable, "-m", "runner", "problems", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    assert listing.stdout is not None
    listing.stdout.close()
    assert listing.stderr is not None
    assert listing.stderr.read() == b""
    assert listing.wait(30) == 0


def test_an_evaluation_is_one_json_document_with_all_that_was_promised() -> None:
    done = runner("evaluate", "vector_add", KERNEL.path, *QUICK, "--pairs", "10", "--json")
    assert done.returncode == 0, done.stderr
    found = document(done)
    # Other work on this machine may make the two clocks disagree; that is a result as well.
    assert found["verdict"] in ("passed", "timing_disputed")
    assert (found["speedup"] is not None) is (found["verdict"] == "passed")
    promised = {"verdict", "reason", "cases", "speedup", "integrity", "timer", "device"}
    assert promised | {"versions", "source_sha256", "isolation"} <= found.keys()
    scored = next(case for case in found["cases"] if case["scored"])
    assert {
        "case",
        "median_us",
        "baseline",
        "baseline_us",
        "ci95",
        "max_rel_error",
    } <= scored.keys()
    unscored = next(case for case in found["cases"] if not case["scored"])
    assert unscored["median_us"] is None
    assert "compiling" in done.stderr


def test_a_kernel_that_does_not_compile_is_a_result_and_not_an_error(tmp_path: Path) -> None:
    source = tmp_path / "broken.cpp"
    source.write_text("int main( {\n")
    done = runner("evaluate", "vector_add", source, *QUICK, "--json")
    assert done.returncode == 0
    assert document(done)["verdict"] == "compile_error"
    told = runner("evaluate", "vector_add", source, *QUICK)
    assert told.stdout.startswith("compile_error: ")
    assert "error:" in told.stdout


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        (("evaluate", "sofmax", KERNEL.path), "problem", "Use one of:"),
        (("evaluate", "softmax", "nowhere.cpp"), "source", "cannot be read"),
        (("evaluate", "softmax", ROOT / "pyproject.toml"), "source", "no language has the suffix"),
        (("evaluate", "softmax", ROOT), "source", "cannot be read"),
        (("evaluate", "softmax", KERNEL.path, "--device", "tpu"), "device", "names no device"),
        (("evaluate", "softmax", KERNEL.path, *QUICK, "--pairs", "0"), "pairs", "is outside"),
        (("evaluate", "softmax", KERNEL.path, *QUICK[:2], "--case-set", "x"), "case_set", "Use"),
        (("run", "softmax", "-o", "a.zip", "--evaluations", "0"), "evaluations", "is outside"),
        (("run", "softmax", "-o", "a.zip", "--goal", "nan"), "goal_speedup", "is outside"),
        (("run", "softmax", "-o", "a.zip", "--wall-clock", "0"), "wall_clock_s", "is outside"),
        (("run", "softmax", "-o", "a.zip", "--agent", "oracle"), "agent", "Use one of:"),
        (("run", "softmax", *QUICK, "-o", "no/such/folder/a.zip"), "output", "cannot be written"),
        (("ceilings", "--device", "gpu7"), "device", "names no device"),
    ],
)
def test_a_request_that_cannot_be_met_names_field_and_remedy(
    arguments: tuple[str | Path, ...], field: str, words: str, capsys: Capture
) -> None:
    assert main([*map(str, arguments), "--json"]) == 2
    told = capsys.readouterr()
    error = json.loads(told.out)["error"]
    assert error["field"] == field
    assert words in f"{error['problem']} {error['remedy']}"
    assert told.err.startswith(f"error: {field}: ")


def test_a_source_that_is_no_text_or_no_kernel_by_its_size_is_refused(
    tmp_path: Path, capsys: Capture
) -> None:
    source = tmp_path / "kernel.cpp"
    for content, words in ((b"\xff\xfe", "is not UTF-8 text"), (bytes(2**21), "is larger than")):
        source.write_bytes(content)
        assert main(["evaluate", "softmax", str(source)]) == 2
        told = capsys.readouterr()
        assert (told.out, words in told.err) == ("", True)


@pytest.mark.parametrize(
    "arguments", [(), ("dance",), ("run", "softmax"), ("run", "softmax", "--evaluations", "x")]
)
def test_arguments_that_cannot_be_parsed_exit_with_2(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2


def test_the_exit_status_of_a_refusal_reaches_the_shell() -> None:
    done = runner("evaluate", "sofmax", KERNEL.path)
    assert (done.returncode, done.stdout) == (2, "")


def test_a_run_writes_its_archive_and_one_document(tmp_path: Path) -> None:
    path = tmp_path / "run.warpdeck.zip"
    wanted = ("--evaluations", "2", "--seed", "5", "-o", path)
    done = runner("run", "vector_add", *QUICK, *wanted, "--json")
    assert done.returncode == 0, done.stderr
    found = document(done)
    assert (found["status"], found["evaluations"]) == ("finished", 2)
    with read_archive(path) as archive:
        archive.verify()
        assert archive.manifest.run == found["run"]
        assert archive.manifest.status == "finished"
        best = archive.state.best
        source = archive.read(archive.state.candidates[1].source_sha256).decode()
    assert (found["best"]["number"] if found["best"] else None) == best
    assert source == KERNEL.source
    assert [path.name for path in tmp_path.iterdir()] == ["run.warpdeck.zip"]
    assert re.search(r"^c2: .* from c1", done.stderr, re.MULTILINE)


def test_a_run_that_fails_still_writes_its_archive(tmp_path: Path) -> None:
    path = tmp_path / "run.warpdeck.zip"
    done = runner("run", "vector_add", *QUICK, "-o", path, "--json", PATH="/nowhere")
    assert done.returncode == 1
    assert document(done)["status"] == "failed"
    with read_archive(path) as archive:
        assert archive.manifest.status == "failed"
        assert "g++" in archive.manifest.reason


class Running:
    """A long run as a child process, whose stderr is read line by line."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-m", "runner", "run", "vector_add", *QUICK, "-o", str(path)]
        self.process = subprocess.Popen(
            [*command, "--evaluations", "500"],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, pattern: str) -> None:
        errors: IO[str] | None = self.process.stderr
        assert errors is not None
        for line in errors:
            if re.match(pattern, line):
                return
        raise AssertionError(f"the run ended without a line like {pattern}")

    def end(self) -> int:
        self.process.communicate(timeout=120)
        return self.process.returncode


def stopped(path: Path) -> RunState:
    with read_archive(path) as archive:
        assert archive.manifest.status == "stopped"
        assert archive.manifest.reason == "stopped by the person at the terminal"
        return archive.state


def test_control_c_stops_at_the_next_step_and_writes_the_archive(tmp_path: Path) -> None:
    running = Running(tmp_path / "run.warpdeck.zip")
    running.wait_for(r"c2: .* from c1")
    running.process.send_signal(signal.SIGINT)
    assert running.end() == 0
    assert 1 <= stopped(tmp_path / "run.warpdeck.zip").evaluations_used < 500


def test_a_termination_gives_the_evaluation_up_and_writes_the_archive(tmp_path: Path) -> None:
    running = Running(tmp_path / "run.warpdeck.zip")
    running.wait_for(r"c1: Start")
    running.process.send_signal(signal.SIGTERM)
    assert running.end() == 0
    assert stopped(tmp_path / "run.warpdeck.zip").pending == (1,)


def test_ceilings_are_one_document_of_roofs_with_their_sources() -> None:
    found = document(runner("ceilings", "--device", "host", "--json"))
    assert found["device"]["kind"] == "host"
    assert {"measured", "modelled"} <= {roof["source"] for roof in found["ceilings"]}
    assert all(roof["value"] is None or roof["value"] > 0 for roof in found["ceilings"])


def test_a_table_right_aligns_numbers_and_leaves_no_trailing_space() -> None:
    laid_out = console.table(("a", "b", "c"), [("x", "1", "y"), ("long", "10", "")], right=(1,))
    assert laid_out == "a      b  c\nx      1  y\nlong  10"


def test_an_evaluation_for_people_names_what_failed() -> None:
    failed = make_evaluation(None, Verdict.wrong_values, reason="error 0.3", output="printed\n")
    checks = (
        IntegrityCheck("inputs_unchanged", False, "x changed at [3]"),
        IntegrityCheck.not_judged("physics", "no roof is measured"),
        IntegrityCheck("source_hash", True, "built from this source"),
    )
    text = console.evaluation(replace(failed, integrity=checks))
    assert text.startswith("wrong_values: error 0.3")
    assert "Inputs unchanged     ! failed      x changed at [3]" in text
    assert "Physically possible  ? not judged  no roof is measured" in text
    assert "Source is what ran   passed        built from this source" in text
    assert text.endswith("printed")
    assert "1.50× (95% 1.48–1.52)" in console.evaluation(make_evaluation(1.5))


@pytest.mark.parametrize(
    ("isolation", "isolated"),
    [
        ("none: fake", False),
        ("own session, rlimits; no network or file-system isolation (bwrap: absent)", False),
        ("bubblewrap: no network, own processes, read-only file system", True),
        ("", True),
    ],
)
def test_a_result_without_isolation_says_so_loudly(isolation: str, isolated: bool) -> None:
    found = replace(make_evaluation(1.5), isolation=isolation)
    said = "not isolated: numbers from here are not evidence" in console.evaluation(found)
    assert (said, flat_json(found)["isolated"]) == (not isolated, isolated)


def test_an_evaluation_tells_the_launch_apart_from_the_device() -> None:
    found = make_evaluation(2.0)
    (case,) = found.cases
    assert case.timing is not None
    timing = replace(case.timing, median_us=5.0, launch_us=9.8, baseline_launch_us=7.0)
    text = console.evaluation(replace(found, cases=(replace(case, timing=timing),)))
    assert "device 5.00 µs · launch 9.80 µs; launch-bound" in text
    assert "(torch: device 1.00 ms · launch 7.00 µs)" in text
    assert "launch" not in console.evaluation(found)


def test_the_document_explains_each_check_by_itself() -> None:
    checks = (IntegrityCheck.not_judged("physics", "no roof is measured"),)
    (told,) = flat_json(replace(make_evaluation(1.5), integrity=checks))["integrity"]
    assert (told["check"], told["passed"], told["status"]) == ("physics", False, "not_judged")
    assert told["title"] == "Physically possible"
    assert told["meaning"].endswith(".")
