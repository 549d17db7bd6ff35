"""Runs of the command line as real processes: killed and resumed, replayed, asked for things."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner import console, launch
from runner.__main__ import main
from runner.agents.scripted import ScriptedAgent
from runner.archive import read_archive, write_archive
from runner.drive import drive
from runner.events import EventType
from runner.partial import Partial
from runner.spec import Budgets, RunSpec
from runner.state import RunState
from runner.terminal import Narrator
from tests.runner.fakes import (
    FakeEvaluator,
    Requests,
    bench,
    by_first_line,
    finish,
    make_log,
    only,
    spending,
    talker,
    turn,
    write,
)

ROOT = Path(__file__).resolve().parents[2]
QUICK = ("--device", "host", "--case-set", "host-quick")
Capture = pytest.CaptureFixture[str]
COUNT = 14


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive whose candidates do not compile, so that evaluating them again is quick."""
    path = tmp_path_factory.mktemp("replayed") / "script.warpdeck.zip"
    sources = tuple(f"// compile_error\nint broken_{number}( {{\n" for number in range(COUNT))
    log, spec = make_log(), RunSpec("vector_add", budgets=Budgets(evaluations=COUNT))
    agent, evaluator = ScriptedAgent(sources), FakeEvaluator(by_first_line)
    drive(spec, log, evaluator, Requests(), create=only(agent))
    write_archive(path, log.history(), log.read)
    return path


def command(script: Path, output: Path, *more: str) -> list[str]:
    start = [sys.executable, "-m", "runner", "run", "vector_add", *QUICK]
    return [*start, "--replay", str(script), "-o", str(output), "--json", *more]


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, f"never: {what}"
        time.sleep(0.02)


@contextlib.contextmanager
def running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        arguments, cwd=ROOT, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_killed_run_goes_on_with_the_same_command_and_nothing_is_done_twice(
    script: Path, tmp_path: Path, capsys: Capture
) -> None:
    output = tmp_path / "run.warpdeck.zip"
    partial = Partial(output)
    for already in (2, 5):
        more = () if already == 2 else ("--resume",)
        with running(command(script, output, *more)) as process:
            until(
                lambda count=already: len(partial.state().evaluations) >= count,  # type: ignore[misc]
                f"{already} evaluations",
            )
            os.kill(process.pid, signal.SIGKILL)
            process.wait(30)
        assert not output.exists()
    assert main(command(script, output)[3:]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["remedy"].startswith("Go on with it by")
    done = subprocess.run(
        command(script, output, "--resume"), cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["evaluations"], len(found["candidates"])) == (COUNT, COUNT)
    with read_archive(output) as archive:
        archive.verify()
        evaluated = [e.decoded.candidate for e in archive.events if e.type is EventType.evaluation]
        assert evaluated == list(range(1, COUNT + 1))
        resumed = [e for e in archive.events if "resumed" in str(e.payload.get("reason"))]
        assert len(resumed) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["run.warpdeck.zip"]


def asked(output: Path, *words: str) -> int:
    return main(["control", str(output), *words, "--json", "--by", "alice"])


def test_a_run_is_paused_extended_and_stopped_from_another_terminal(
    script: Path, tmp_path: Path, capsys: Capture
) -> None:
    output = tmp_path / "run.warpdeck.zip"
    with running(command(script, output)) as process:
        until(lambda: Partial(output).state().started, "it runs")
        assert asked(output, "pause") == 0
        until(lambda: Partial(output).state().paused, "it is paused")
        assert asked(output, "extend", "--evaluations", "40", "--dollars", "2.5") == 0
        assert asked(output, "resume") == 0
        assert asked(output, "stop") == 0
        assert process.wait(60) == 0
    told = capsys.readouterr().out
    assert [each["request"] for each in _documents(told)] == [1, 2, 3, 4]
    with read_archive(output) as archive:
        state = archive.state
        controls = [e.decoded for e in archive.events if e.type is EventType.control]
    assert (state.status.value, state.reason) == ("stopped", "stopped by alice")
    assert [each.action.value for each in controls] == ["pause", "extend", "resume", "stop"]
    assert state.limits == Budgets(40, 900.0, None, 2.5)
    assert asked(output, "stop") == 2
    refusal = json.loads(capsys.readouterr().out)["error"]
    assert (refusal["field"], "nobody drives" in refusal["problem"]) == ("archive", True)


def _documents(text: str) -> Iterator[Any]:
    decoder, at = json.JSONDecoder(), 0
    while at < len(text.rstrip()):
        document, at = decoder.raw_decode(text, at)
        yield document
        at += len(text[at:]) - len(text[at:].lstrip())


RUN = ("run", "vector_add", *QUICK, "-o", "{}/a.warpdeck.zip")


@pytest.mark.parametrize(
    ("arguments", "field", "words"),
    [
        ((*RUN, "--workflow", "dance"), "workflow", "Use one of: flame_chase"),
        ((*RUN, "--workflow", "flame_chase"), "partner", "takes 2 agents"),
        ((*RUN, "--partner", "search"), "partner", "takes one agent"),
        ((*RUN, "--tokens", "5"), "tokens", "too few"),
        ((*RUN, "--dollars", "-1"), "dollars", "outside"),
        ((*RUN, "--resume"), "resume", "no run was interrupted there"),
        ((*RUN, "--agent", "replay"), "agent", "nothing to replay"),
        ((*RUN, "--replay", "nowhere.zip"), "replay", "cannot be read"),
        ((*RUN, "--replay", "pyproject.toml"), "replay", "pyproject.toml"),
        (("control", "a.warpdeck.zip", "stop"), "archive", "nobody drives"),
        (("control", "a.warpdeck.zip", "stop", "now"), "text", "goes with steer"),
        (("control", "a.warpdeck.zip", "pause", "--tokens", "9"), "tokens", "goes with extend"),
    ],
)
def test_what_cannot_be_run_or_asked_names_field_and_remedy_and_leaves_nothing(
    arguments: tuple[str, ...], field: str, words: str, tmp_path: Path, capsys: Capture
) -> None:
    assert main([*(each.format(tmp_path) for each in arguments), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["field"] == field
    assert words in f"{error['problem']} {error['remedy']}"
    assert list(tmp_path.iterdir()) == []


def test_a_replay_is_refused_for_another_problem_and_for_another_agent(
    script: Path, tmp_path: Path, capsys: Capture
) -> None:
    output = ("-o", str(tmp_path / "a.warpdeck.zip"), "--replay", str(script), "--json")
    assert main(["run", "softmax", *QUICK, *output]) == 2
    assert "is of a run on vector_add" in capsys.readouterr().out
    assert main(["run", "vector_add", "--agent", "search", *QUICK, *output]) == 2
    assert "has an agent of its own" in capsys.readouterr().out


def test_an_agent_that_lacks_something_here_is_refused_with_the_reason(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    output = str(tmp_path / "a.warpdeck.zip")
    assert main(["run", "vector_add", "--agent", "claude", *QUICK, "-o", output, "--json"]) == 2
    assert "ANTHROPIC_API_KEY is not set" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_needs_no_package_of_agents_unless_it_runs_one() -> None:
    program = (
        "import sys; from runner.__main__ import main; main(['problems', '--json']); "
        "from runner import partial, requests, console, evaluate; "
        "names = ('pydantic', 'anthropic', 'mcp', 'docstring_parser', 'optuna', 'django'); "
        "sys.exit(' '.join(name for name in names if name in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_run_without_the_packages_of_agents_is_refused_with_the_remedy(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pydantic'] = None; from runner.__main__ import main; "
        f"sys.exit(main(['run', 'softmax', '-o', {str(tmp_path / 'a.zip')!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert "the package pydantic is not installed, and agents need it" in done.stderr


def conversation() -> list[Any]:
    log = make_log()
    hostile = "\x1b[2J Reading…\u202e"
    agent = talker(
        turn(("list_zoo", {}), text=hostile, **spending(12_400)),
        turn(("benchmark", {"candidate": 7})),
        turn(write("1.5", "Wide loads."), bench(1)),
        turn(write("wrong_values", "Scratch."), ("check", {"candidate": 2})),
        turn(("write_note", {"text": "Wide loads pay."})),
        turn(finish()),
        closing="Done.",
    )
    spec = RunSpec("softmax", budgets=Budgets(evaluations=5))
    drive(spec, log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    return log.events


def test_a_conversation_is_told_by_its_turns_tools_costs_and_results() -> None:
    told = [line for event in conversation() if (line := console.step(event)) is not None]
    assert told[1:3] == ["— goal 1, scripted", "scripted: [2J Reading… [12.4k tokens, $0.01]"]
    assert told[3] == "  → list_zoo"
    assert "  → benchmark candidate=7" in told
    assert any(line.startswith('  ✗ {"error": {"field": "candidate"') for line in told)
    assert "c1: Wide loads." in told
    assert "note of scripted: Wide loads pay." in told
    assert told[-2] == "  → finish summary=That is all."


def test_the_report_of_a_run_says_what_it_cost_and_its_closing_words() -> None:
    text = console.run(RunState.from_events(conversation()))
    assert "12,400 tokens, $0.01" in text
    assert "not evaluated (check: wrong_values)" in text
    assert "\n\nDone.\n\nMeasured by the harness: best c1: 1.50× over torch" in text


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_turn_is_shown_to_a_person_as_it_is_said_and_not_once_more_when_it_is_done() -> None:
    screen, events = Screen(), conversation()
    narrator = Narrator(screen)
    narrator.overhear("Rea")
    narrator.overhear("Reading")
    narrator.overhear("Reading\x1b[2J…")
    said = next(
        e for e in events if e.decoded.__class__.__name__ == "MessagePayload" and e.artifacts
    )
    narrator.watch(said)
    assert screen.getvalue() == "Reading[2J…\n  [12.4k tokens, $0.01]\n"


def test_nothing_is_shown_as_it_is_said_where_nobody_watches() -> None:
    stream = io.StringIO()
    Narrator(stream).overhear("Reading")
    assert stream.getvalue() == ""


def test_a_turn_that_was_given_up_and_said_again_begins_on_a_line_of_its_own() -> None:
    screen = Screen()
    narrator = Narrator(screen)
    narrator.overhear("Let us")
    narrator.overhear("Try")
    assert screen.getvalue() == "Let us\nTry"


def test_the_document_of_a_run_says_what_models_used(script: Path) -> None:
    found = launch.document(RunState.from_events(conversation()), script)
    assert (found["tokens"], found["dollars"]) == (12_400, 0.01)
    assert found["summary"].startswith("Done.")
    assert found["candidates"][1]["trials"] == {"check": "wrong_values"}
