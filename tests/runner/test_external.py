"""An outside agent: its requests become turns once each, whatever happens to the driver."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner.agents import external
from runner.agents.external import WAITS, Awaited, ExternalAgent, Reply, ToolRequest
from runner.drive import drive
from runner.events import ControlAction, ControlPayload, Event, EventType, MessageKind, RunStatus
from runner.log import MemoryLog
from runner.spec import AgentSpec, Budgets, RunSpec, SpecError
from runner.workflows import names
from tests.runner.fakes import (
    Asked,
    FakeEvaluator,
    Requests,
    Seconds,
    by_first_line,
    make_log,
    only,
    stop_by,
    write,
)

SPEC = RunSpec("softmax", agent="external", budgets=Budgets(evaluations=9, wall_clock_s=1e5))
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("frontier", {}),
    write("1.5"),
    ("benchmark", {"candidate": 1}),
    ("benchmark", {"candidate": 1}),
    ("finish", {"summary": "That is all."}),
)


class Letters:
    """An inbox that holds these calls from the start, or from the given look on."""

    def __init__(self, *calls: tuple[str, dict[str, Any]], patience: int = 0) -> None:
        self._calls = calls
        self._patience = patience

    def next(self, after: int) -> ToolRequest | None:
        if self._patience > 0:
            self._patience -= 1
            return None
        waiting = self._calls[after : after + 1]
        return ToolRequest(after + 1, *waiting[0]) if waiting else None


class OneByOne(Letters):
    """Shows the next call only once the one before was taken, as an agent that waits does."""

    def next(self, after: int) -> ToolRequest | None:
        taken, self._shown = getattr(self, "_shown", -1), after
        return None if taken == after - 1 else super().next(after)


def run(inbox: Letters, log: MemoryLog | None = None, control: Any = None) -> MemoryLog:
    log = log or make_log()
    agent = ExternalAgent(inbox)
    evaluator = FakeEvaluator(by_first_line)
    drive(SPEC, log, evaluator, control or Requests(), clock=Seconds(), create=only(agent))
    return log


def calls_of(log: MemoryLog) -> list[str]:
    return [e.decoded.tool for e in log.events if e.type is EventType.tool_call]


def replies(log: MemoryLog, count: int) -> list[Reply | None]:
    """What each request was answered, read from the whole log."""
    found: list[Reply | None] = []
    for number in range(1, count + 1):
        awaited = Awaited(number, log.read)
        heard = (awaited.hear(event) for event in log.events)
        found.append(next((reply for reply in heard if reply is not None), None))
    return found


def notices(log: MemoryLog) -> list[str]:
    messages = [e.decoded for e in log.events if e.type is EventType.message]
    return [message.text for message in messages if message.kind is MessageKind.notice]


@pytest.mark.parametrize("inbox", [Letters, OneByOne])
def test_requests_are_carried_out_in_their_order_until_finish(inbox: type[Letters]) -> None:
    log = run(inbox(*CALLS))
    assert calls_of(log) == [tool for tool, _ in CALLS]
    assert log.events[-1].decoded.status is RunStatus.finished


def test_a_run_cut_after_any_event_takes_every_request_once() -> None:
    whole = run(Letters(*CALLS))
    for cut in range(len(whole.events)):
        log = run(Letters(*CALLS), make_log(whole.events[:cut], whole))
        assert calls_of(log) == calls_of(whole), f"cut after event {cut}"
        assert all(reply and reply.ok for reply in replies(log, len(CALLS)))
        types = [event.type for event in log.events]
        assert types.count(EventType.candidate) == types.count(EventType.evaluation) == 1


def test_a_goal_that_is_not_reached_does_not_keep_a_run_whose_agent_is_gone() -> None:
    log, agent = make_log(), ExternalAgent(Letters(*CALLS))
    spec = RunSpec("softmax", agent="external", goal_speedup=9.0, budgets=SPEC.budgets)
    drive(spec, log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    assert log.events[-1].decoded.status is RunStatus.finished
    briefs = [e for e in log.events if e.payload.get("kind") == MessageKind.brief]
    assert len(briefs) == 1


def test_many_waiting_requests_become_turns_of_a_few() -> None:
    log = run(Letters(*[("frontier", {})] * 20, *CALLS))
    turns = [e for e in log.events if any(ref.name == "turn.json" for ref in e.artifacts)]
    sizes = [len(json.loads(log.read(event.artifacts[0].sha256))["calls"]) for event in turns]
    assert sizes == [8, 8, 8, 1]


def test_people_are_told_once_that_nobody_has_connected() -> None:
    log = run(Letters(*CALLS, patience=5))
    assert notices(log) == [WAITS]


def test_nobody_is_told_so_where_a_driver_takes_over() -> None:
    waiting = run(Letters(*CALLS, patience=5))
    opened = next(event for event in waiting.events if event.payload.get("text") == WAITS)
    log = run(Letters(*CALLS, patience=5), make_log(waiting.events[: opened.seq], waiting))
    assert notices(log) == [WAITS]


def test_a_person_can_stop_a_run_that_waits() -> None:
    log = run(Letters(), control=Asked((8, stop_by("grace"))))
    assert log.events[-1].decoded.reason == "stopped by grace"


def test_the_wall_clock_ends_a_run_to_which_nobody_connects() -> None:
    log, agent = make_log(), ExternalAgent(Letters())
    spec = RunSpec("softmax", agent="external", budgets=Budgets(wall_clock_s=60))
    drive(spec, log, FakeEvaluator(by_first_line), Requests(), clock=Seconds(), create=only(agent))
    assert log.events[-1].decoded.status is RunStatus.finished
    assert "wall clock of 1 min used" in log.events[-1].decoded.reason


def test_what_people_say_reaches_the_agent_with_its_next_answer_alone() -> None:
    note = ControlPayload(ControlAction.steer, "grace", "Mind the tail.")
    log = run(OneByOne(*CALLS), control=Asked((9, note)))
    told = [reply.told for reply in replies(log, len(CALLS)) if reply is not None]
    said = "grace, a person who watches this run, says: Mind the tail."
    assert [texts for texts in told if texts] == [(said,)]


def test_a_request_that_the_run_outlives_not_is_told_how_it_ended() -> None:
    log = run(Letters(*CALLS))
    reply = replies(log, len(CALLS) + 1)[-1]
    assert reply is not None
    assert reply.error is not None
    assert reply.error["error"]["problem"].startswith("has finished: the agent finished after 1")


def test_an_unanswered_request_has_no_reply() -> None:
    log = run(Letters(*CALLS))
    result = next(event for event in log.events if event.type is EventType.tool_result)
    awaited = Awaited(2, log.read)
    assert [awaited.hear(event) for event in log.events[: result.seq]] == [None] * result.seq


@pytest.mark.parametrize("workflow", [name for name in names() if name != "goal"])
def test_other_workflows_are_refused_with_the_remedy(workflow: str) -> None:
    with pytest.raises(SpecError, match="Use goal"):
        RunSpec("softmax", agent="external", workflow=workflow).validate()


def test_a_second_agent_is_refused() -> None:
    with pytest.raises(SpecError, match="goal takes one agent"):
        RunSpec("softmax", agent="external", partner=AgentSpec("search")).validate()


def test_it_cannot_be_driven_where_nobody_can_connect() -> None:
    with pytest.raises(SpecError, match="runner mcp"):
        external.create(AgentSpec("external"))


def test_events_of_agents_of_ours_hold_no_reply() -> None:
    awaited = Awaited(1, {}.__getitem__)
    said = {"author": "search", "text": "Try this."}
    event = Event("run", 2, "2026-01-01T00:00:00.000000+00:00", EventType.message, said)
    assert awaited.hear(event) is None
