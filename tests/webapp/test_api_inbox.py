"""Calls as they come in: which are taken, numbered, found again, or refused with a remedy."""

from __future__ import annotations

import json

import pytest

from runner.agents.external import Reply
from runner.conversation import TURN, Call, Turn
from runner.events import MessagePayload, RunPayload, RunStatus, ToolResultPayload
from runner.wire import canonical, to_json
from tests.factories import make_event, make_run
from webapp.api.inbox import MOST_WAITING, RunInbox, put
from webapp.api.models import ToolRequest
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def run() -> Run:
    return make_run("running", agent="external")


def taken(answer: ToolRequest | Reply) -> ToolRequest:
    assert isinstance(answer, ToolRequest), answer
    return answer


def fault(answer: ToolRequest | Reply) -> dict[str, str]:
    assert isinstance(answer, Reply), answer
    return json.loads(answer.text)["error"]  # type: ignore[no-any-return]


def deliver(row: ToolRequest) -> None:
    ToolRequest.objects.filter(pk=row.pk).update(delivered=True)


def take_up(run: Run, *numbers: int) -> None:
    """The turn in which a driver takes these requests."""
    turn = Turn(calls=tuple(Call(str(number), "frontier") for number in numbers))
    make_event(run, MessagePayload("external", ""), {TURN: canonical(to_json(turn)).encode()})


def test_calls_are_numbered_densely_in_their_run(run: Run) -> None:
    other = make_run("running", agent="external")
    numbers = [taken(put(each.pk, "frontier", {})).number for each in (run, other)]
    numbers += [taken(put(run.pk, f"tool{i}", {})).number for i in range(2)]
    assert numbers == [1, 1, 2, 3]


def test_the_inbox_gives_them_in_their_order_and_whole(run: Run) -> None:
    arguments = {"source": "ä\n\u0000\U0001f600" * 1000, "parent": None}
    put(run.pk, "write_candidate", arguments)
    put(run.pk, "frontier", {})
    inbox = RunInbox(run.pk)
    first, second = inbox.next(0), inbox.next(1)
    assert first is not None
    assert second is not None
    assert (first.number, first.tool, first.arguments) == (1, "write_candidate", arguments)
    assert second.number == 2
    assert inbox.next(2) is None


def test_a_call_whose_answer_was_lost_is_found_again(run: Run) -> None:
    first = taken(put(run.pk, "benchmark", {"candidate": 1}))
    assert taken(put(run.pk, "benchmark", {"candidate": 1})) == first
    assert taken(put(run.pk, "benchmark", {"candidate": 2})) != first


def test_a_call_that_was_answered_is_a_new_one_the_next_time(run: Run) -> None:
    first = taken(put(run.pk, "frontier", {}))
    deliver(first)
    assert taken(put(run.pk, "frontier", {})).number == 2


def test_an_old_answer_is_not_given_for_a_new_question(run: Run) -> None:
    put(run.pk, "frontier", {})
    deliver(taken(put(run.pk, "write_note", {"text": "so"})))
    assert taken(put(run.pk, "frontier", {})).number == 3


def test_a_call_remembers_the_last_result_before_it(run: Run) -> None:
    row = make_event(run, ToolResultPayload("e2.1", True, "done"))
    make_event(run, MessagePayload("warpdeck", "a nudge"))
    assert taken(put(run.pk, "frontier", {})).heard_seq == row.seq


def test_only_so_many_calls_may_wait(run: Run) -> None:
    for number in range(MOST_WAITING):
        taken(put(run.pk, "read_candidate", {"candidate": number}))
    refusal = fault(put(run.pk, "frontier", {}))
    assert refusal["problem"] == f"{MOST_WAITING} calls wait already."
    assert refusal["remedy"]


def test_calls_that_nobody_waits_for_any_more_do_not_count_once_taken_up(run: Run) -> None:
    for number in range(MOST_WAITING):
        put(run.pk, "read_candidate", {"candidate": number})
    take_up(run, *range(1, 9))
    make_event(run, MessagePayload("warpdeck", "a notice"))
    assert taken(put(run.pk, "frontier", {})).number == MOST_WAITING + 1


def test_a_paused_run_says_who_can_help() -> None:
    run = make_run("running", agent="external")
    make_event(run, RunPayload(RunStatus.paused, "paused by grace"))
    refusal = fault(put(run.pk, "frontier", {}))
    assert refusal["problem"] == "is paused: paused by grace."
    assert "resumed" in refusal["remedy"]
    assert not ToolRequest.objects.exists()


def test_a_queued_run_says_what_it_waits_for() -> None:
    run = make_run("queued", agent="external", reason="waiting: no worker drives agents")
    refusal = fault(put(run.pk, "frontier", {}))
    assert "waiting: no worker drives agents" in refusal["problem"]
    assert refusal["remedy"].startswith("Call again")


@pytest.mark.parametrize(
    ("status", "words"),
    [("finished", "has finished"), ("stopped", "has been stopped"), ("failed", "has failed")],
)
def test_a_run_that_is_over_says_how_it_ended(status: str, words: str) -> None:
    run = make_run(status, agent="external", reason="for a reason")
    assert fault(put(run.pk, "frontier", {}))["problem"] == f"{words}: for a reason."


def test_arguments_that_are_no_json_and_endless_names_are_refused(run: Run) -> None:
    assert fault(put(run.pk, "frontier", {"x": float("nan")}))["field"] == "arguments"
    assert fault(put(run.pk, "x" * 1000, {}))["field"] == "tool"
