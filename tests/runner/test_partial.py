"""The folder of a run under way: its lock, its requests, and what is refused."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from runner.agents.scripted import ScriptedAgent
from runner.drive import drive
from runner.events import ControlAction, EventType, MessagePayload, RunPayload, RunStatus
from runner.local import TerminalControl
from runner.partial import Partial
from runner.results import Evaluation
from runner.spec import Budgets, RunSpec, SpecError
from runner.state import RunState
from tests.runner.fakes import FakeEvaluator, by_first_line, only

SPEC = RunSpec("softmax", agent="claude", budgets=Budgets(evaluations=10))


@pytest.fixture
def partial(tmp_path: Path) -> Partial:
    """A run that has just begun."""
    found = Partial(tmp_path / "run.warpdeck.zip")
    found.start()
    found.log(lambda event: None).emit(RunPayload(RunStatus.running, "started", SPEC))
    return found


def test_a_folder_that_is_there_already_is_refused_with_the_way_on(partial: Partial) -> None:
    with pytest.raises(SpecError, match="holds a run that did not end") as refused:
        partial.start()
    assert "--resume" in refused.value.remedy


def test_only_the_run_that_was_started_is_gone_on_with(partial: Partial, tmp_path: Path) -> None:
    partial.check(SPEC)
    other = RunSpec("softmax", agent="claude", seed=5, budgets=Budgets(evaluations=11))
    with pytest.raises(SpecError, match="started with another seed, budgets"):
        partial.check(other)
    with pytest.raises(SpecError, match="no run was interrupted there"):
        Partial(tmp_path / "other.warpdeck.zip").check(SPEC)


def test_two_processes_cannot_drive_one_run(partial: Partial) -> None:
    assert not partial.driven
    with partial.held():
        assert partial.driven
        with pytest.raises(SpecError, match="another process is driving"), partial.held():
            pass
    assert not partial.driven


def test_requests_are_numbered_and_found_again(partial: Partial) -> None:
    with partial.held():
        partial.ask(ControlAction.pause, "alice")
        partial.ask(ControlAction.steer, "bob", " Try AVX-512. ")
    again = Partial(partial.output).requests
    first, second = again.first_after(0), again.first_after(1)
    assert first is not None
    assert second is not None
    assert (first.action, first.by, first.request) == (ControlAction.pause, "alice", 1)
    assert (second.text, second.request) == ("Try AVX-512.", 2)
    assert again.first_after(2) is None


def test_requests_of_many_at_once_are_all_there(partial: Partial) -> None:
    with partial.held():
        asking = [
            threading.Thread(target=partial.ask, args=(ControlAction.steer, f"p{n}", "Hello."))
            for n in range(12)
        ]
        for each in asking:
            each.start()
        for each in asking:
            each.join()
    found = [partial.requests.first_after(number) for number in range(12)]
    assert [each.request for each in found if each] == list(range(1, 13))
    assert {each.by for each in found if each} == {f"p{n}" for n in range(12)}


def test_half_a_request_of_a_killed_process_is_none_and_gives_way(partial: Partial) -> None:
    path = partial.folder / "requests.jsonl"
    path.write_bytes(b'{"action":"sto')
    assert partial.requests.first_after(0) is None
    with partial.held():
        assert partial.ask(ControlAction.stop, "alice").request == 1
    assert path.read_bytes().count(b"\n") == 1


def test_a_line_that_is_no_request_is_refused_by_its_number(partial: Partial) -> None:
    (partial.folder / "requests.jsonl").write_text('{"action":"dance"}\n')
    with pytest.raises(SpecError, match=r"line 1 of requests\.jsonl is no request"):
        partial.requests.first_after(0)


def test_what_cannot_be_had_is_refused_with_its_field(partial: Partial) -> None:
    with pytest.raises(SpecError, match="nobody drives a run of"):
        partial.ask(ControlAction.stop, "alice")
    with partial.held():
        for action, text, limits, field in (
            (ControlAction.resume, "", None, "action"),
            (ControlAction.steer, "  ", None, "text"),
            (ControlAction.steer, "x" * 5000, None, "text"),
            (ControlAction.extend, "", None, "budgets"),
            (ControlAction.extend, "", {"evaluations": 0}, "evaluations"),
            (ControlAction.extend, "", {"tokens": 5}, "tokens"),
        ):
            with pytest.raises(SpecError) as refused:
                partial.ask(action, "alice", text, limits)
            assert (refused.value.field, bool(refused.value.remedy)) == (field, True)
        partial.ask(ControlAction.pause, "alice")
        with pytest.raises(SpecError, match="alice asked it to pause before"):
            partial.ask(ControlAction.pause, "bob")
        partial.ask(ControlAction.stop, "alice")
        with pytest.raises(SpecError, match="alice asked it to stop before"):
            partial.ask(ControlAction.resume, "bob")


def test_extensions_add_up_before_they_take_effect(partial: Partial) -> None:
    with partial.held():
        partial.ask(ControlAction.extend, "alice", limits={"evaluations": 20})
        second = partial.ask(ControlAction.extend, "bob", limits={"wall_clock_s": 5000})
    assert second.budgets == Budgets(evaluations=20, wall_clock_s=5000)


class Asking(FakeEvaluator):
    """Asks for something while a candidate is evaluated."""

    def __init__(self, partial: Partial, requests: dict[int, tuple[ControlAction, str]]) -> None:
        super().__init__(self._judge)
        self._partial, self._requests = partial, requests

    def _judge(self, source: str) -> Evaluation:
        if (request := self._requests.get(self.asked[-1])) is not None:
            limits = {"evaluations": 3} if request[0] is ControlAction.extend else None
            self._partial.ask(request[0], "alice", request[1], limits)
        return by_first_line(source)


def driven(partial: Partial, requests: dict[int, tuple[ControlAction, str]]) -> RunState:
    control = TerminalControl(partial.requests, threading.Event(), lambda line: None)
    agent = ScriptedAgent(tuple(f"// 1.{number}\n" for number in range(1, 9)))
    log = partial.log(lambda event: None)
    with partial.held():
        drive(SPEC, log, Asking(partial, requests), control, create=only(agent))
    return RunState.from_events(log.history())


def test_requests_take_effect_at_the_next_step(partial: Partial) -> None:
    asked = {
        1: (ControlAction.steer, "Try AVX-512."),
        2: (ControlAction.extend, ""),
    }
    state = driven(partial, asked)
    assert state.reason.startswith("evaluation budget of 3 used")
    assert state.request == 2
    log = partial.log(lambda event: None)
    notes = [e.decoded.text for e in log.history() if e.type is EventType.control]
    assert notes == ["Try AVX-512.", ""]


def test_a_paused_run_waits_for_its_resumption_and_the_wait_is_nobodys_use(
    partial: Partial,
) -> None:
    timer = threading.Timer(0.8, partial.ask, (ControlAction.resume, "bob"))
    timer.start()
    state = driven(partial, {1: (ControlAction.pause, ""), 3: (ControlAction.stop, "")})
    timer.join()
    assert (state.status, state.reason) == (RunStatus.stopped, "stopped by alice")
    assert state.evaluations_used == 3
    assert state.wall_clock_s < 0.7
    assert state.budget is not None
    assert state.budget.wall_clock_s < 0.7


def test_a_request_is_heeded_once_even_by_the_driver_after_a_crash(partial: Partial) -> None:
    driven(partial, {1: (ControlAction.steer, "Try AVX-512.")})
    lines = (partial.folder / "events.jsonl").read_bytes().splitlines(keepends=True)
    (partial.folder / "events.jsonl").write_bytes(b"".join(lines[: len(lines) // 2]))
    state = driven(partial, {})
    log = partial.log(lambda event: None)
    assert sum(event.type is EventType.control for event in log.history()) == 1
    assert state.status.ended


def test_the_log_of_a_run_that_is_being_written_can_be_read(partial: Partial) -> None:
    with (partial.folder / "events.jsonl").open("ab") as file:
        file.write(b'{"artifacts":[],"at":"20')
    assert partial.state().spec == SPEC
    log = partial.log(lambda event: None)
    log.emit(MessagePayload("search", "goes on"))
    assert partial.state().last_seq == 2
