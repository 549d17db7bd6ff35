"""What goes wrong between Claude and us: limits, silence, breaks, refusals of the API.

Nothing of it is hidden, nothing is endless, and nothing is for free.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import anthropic
import httpx2
import pytest

from runner.events import ControlAction, ControlPayload, EventType, RunStatus
from runner.loop import Interrupted
from runner.messages import faults
from runner.spec import Budgets
from tests.runner.claude_runs import SPEC, HintedLog, Played, play, write
from tests.runner.fakes import Requests, stop_by
from tests.runner.messages_server import (
    KEY,
    Drop,
    Reply,
    Response,
    Silent,
    Status,
    Text,
    ToolUse,
    context_exceeded,
    reply,
)

FRONTIER = reply(Text("I look at the frontier."), ToolUse("frontier"))
LONG = reply(Text("word " * 200), ToolUse("frontier"))
QUICK = {"silence_s": 0.3}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (Status(529), "The model is overloaded (529)"),
        (Status(429), "The model's rate limit is reached (429)"),
        (Status(500), "The model's interface failed (500)"),
        (Status(529, within=True), "The model is overloaded (529)"),
        (Drop(LONG, 0), "The model's reply broke off"),
        (Drop(LONG, 5), "The model's reply broke off"),
        (Silent(5), "The model has sent nothing for 0.3 s"),
        (Silent(5, LONG, 5), "The model has sent nothing for 0.3 s"),
    ],
    ids=["529", "429", "500", "529 within", "dropped at once", "dropped", "silent", "fell silent"],
)
def test_a_passing_fault_is_shown_waited_for_and_asked_again(fault: Response, words: str) -> None:
    played = play([fault, FRONTIER], patience=QUICK)
    assert played.notices[0].startswith(f"{words}; trying again in 2 s, attempt 2 of 8.")
    assert 1.5 <= sum(played.waits) <= 2.5
    assert played.requests[1] == played.requests[0]
    assert played.turns[0].text == "I look at the frontier."
    assert played.status is RunStatus.finished


def test_waits_double_to_their_longest_and_then_the_run_fails_with_the_reason() -> None:
    played = play([Status(429)] * 8)
    assert played.status is RunStatus.failed
    reason = "the model's rate limit is reached (429), 8 times in a row"
    assert played.state.reason.startswith(reason)
    assert len(played.notices) == 8
    assert played.notices[7].endswith("attempt 8 of 8 was the last.")
    assert 136 <= sum(played.waits) <= 228  # 2 + 4 + 8 + 16 + 32 + 60 + 60, a quarter is chance
    assert max(played.waits) <= 0.25


def test_what_was_measured_stays_when_the_model_is_lost() -> None:
    script = [reply(write("1.5")), reply(ToolUse("benchmark", {"candidate": 1}))]
    played = play([*script, *[Status(529)] * 8], closing=Status(529))
    assert played.status is RunStatus.failed
    assert "best c1: 1.50×" in played.state.reason
    assert "1.50×" in (played.state.summary or "")


def test_the_api_says_how_long_to_wait() -> None:
    played = play([Status(429, retry_after="17"), FRONTIER])
    assert "trying again in 17 s" in played.notices[0]
    assert sum(played.waits) == pytest.approx(17.0)


def test_the_api_says_until_when_to_wait() -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=30), usegmt=True)
    played = play([Status(503, retry_after=moment), FRONTIER])
    assert 25 <= sum(played.waits) <= 30


def test_a_wait_that_nobody_can_read_is_our_own() -> None:
    assert 1.5 <= sum(play([Status(429, retry_after="soon"), FRONTIER]).waits) <= 2.5


def test_a_slow_thinker_that_sends_pings_is_not_given_up() -> None:
    slow = Reply((Text("At last."), ToolUse("frontier")), pings=6, gap_s=0.15)
    played = play([slow], patience={"silence_s": 0.4})
    assert played.notices == []
    assert played.turns[0].text == "At last."


@pytest.mark.parametrize("status", [400, 401, 403, 404])
def test_a_refused_request_fails_the_run_at_once_with_the_words_of_the_api(status: int) -> None:
    played = play([Status(status, message="your plan does not include this model")])
    assert played.status is RunStatus.failed
    assert played.state.reason.startswith(
        f"the model's interface refused the request ({status}): your plan does not include"
    )
    assert played.waits == []


def test_an_error_that_quotes_the_key_does_not_take_it_into_the_log() -> None:
    played = play([Status(401, message=f"invalid x-api-key {KEY}, or sk-ant-other-987654321")])
    kept = json.dumps([event.payload for event in played.log.events])
    assert "invalid x-api-key ***, or ***" in kept
    assert KEY not in kept


def test_nobody_listening_is_asked_again_and_then_fails() -> None:
    played = play(base_url="http://127.0.0.1:9", patience={"attempts": 3})
    assert played.notices[0].startswith("The model cannot be reached; trying again in 2 s")
    assert played.state.reason.startswith("the model cannot be reached, 3 times in a row")


def test_what_a_given_up_reply_cost_is_counted() -> None:
    played = play([Drop(LONG, 20), FRONTIER])
    lost = next(
        event.decoded for event in played.log.events if event.payload.get("kind") == "notice"
    )
    assert lost.usage.cache_write_tokens > 3000
    assert lost.usage.output_tokens > 100  # of the 20 events that had been streamed
    assert played.state.dollars == pytest.approx(sum(u.dollars or 0 for u in played.usages))
    assert len(played.usages) == len(played.requests)


def test_a_whole_reply_is_kept_though_its_connection_breaks_or_stays_open_after_it() -> None:
    started = time.monotonic()
    played = play([Drop(FRONTIER, 1_000), Silent(30, FRONTIER, 1_000)])
    assert time.monotonic() - started < 5
    assert played.notices == []
    assert [turn.text for turn in played.turns[:2]] == ["I look at the frontier."] * 2
    assert played.status is RunStatus.finished


def test_an_address_that_never_answers_is_not_called_silence() -> None:
    request = httpx2.Request("POST", "http://example.invalid")
    try:
        raise anthropic.APITimeoutError(request) from httpx2.ConnectTimeout("no")
    except anthropic.APITimeoutError as error:
        fault = faults.judge(error, 60.0)
    assert fault == faults.Fault("The model cannot be reached", faults.Remedy.again)


def test_a_defect_of_ours_is_no_fault_of_the_model() -> None:
    assert faults.judge(KeyError("x"), 60.0) is None
    assert faults.judge(ValueError("x"), 60.0) is None


def test_a_stop_cuts_a_silent_reply_within_a_second() -> None:
    started = time.monotonic()
    control = Requests(None, None, None, stop_by("ada"), stop_by("ada"))
    played = play([Silent(30, LONG, 5)], control=control)
    assert time.monotonic() - started < 2.5
    assert played.status is RunStatus.stopped
    assert "The turn was given up: ada asked for a stop." in played.notices
    assert played.usages[0].output_tokens > 10


def test_a_stop_cuts_a_wait() -> None:
    control = Requests(None, None, None, stop_by("ada"), stop_by("ada"))
    played = play(
        [Status(429, retry_after="3000")], control=control, patience={"sleep": time.sleep}
    )
    assert played.status is RunStatus.stopped


def test_the_wall_clock_cuts_a_reply() -> None:
    spec = replace(SPEC, budgets=Budgets(wall_clock_s=1.5))
    started = time.monotonic()
    played = play([Silent(30)], spec)
    assert time.monotonic() - started < 4
    assert played.status is RunStatus.finished
    assert "wall clock of 1.5 s used" in played.state.reason


class Shutdown:
    """The process must end after so many looks at the requests."""

    def __init__(self, looks: int) -> None:
        self._left = looks

    def poll(self, after: int) -> ControlPayload | None:
        self._left -= 1
        if self._left < 0:
            raise Interrupted("the worker shuts down")
        return None

    def pause(self) -> None:
        raise AssertionError("nobody paused")


def test_a_reply_that_the_end_of_the_process_cuts_is_paid_for() -> None:
    log = HintedLog()
    with pytest.raises(Interrupted):
        play([Silent(30, LONG, 8)], log=log, control=Shutdown(4))
    last = log.events[-1]
    assert last.type is EventType.message
    assert last.decoded.usage.cache_write_tokens > 3000


def contexts(played: Played) -> list[int]:
    return [len(request["messages"]) for request in played.requests]


def test_a_full_context_is_answered_with_a_fresh_one() -> None:
    handed = reply(Text("Nothing was measured yet."))
    played = play([FRONTIER, context_exceeded(), handed])
    assert played.notices[0].startswith("The conversation does not fit the model's context")
    assert contexts(played)[:4] == [1, 3, 3, 1]
    assert "Nothing was measured yet." in json.dumps(played.requests[3]["messages"])
    assert played.status is RunStatus.finished


def test_a_reply_that_filled_the_context_is_answered_with_a_fresh_one_and_paid_for() -> None:
    filled = reply(Text("and then"), stop="model_context_window_exceeded")
    played = play([FRONTIER, filled, reply(Text("Go on."))])
    assert contexts(played)[:4] == [1, 3, 3, 1]
    assert played.status is RunStatus.finished
    assert len(played.usages) == len(played.requests)


def test_a_context_that_is_full_twice_in_a_row_fails_the_run_and_never_finishes_it() -> None:
    def full(request: dict[str, Any]) -> Response:
        return FRONTIER if len(request["messages"]) == 1 and not seen.pop() else context_exceeded()

    seen = [True, True, False]
    played = play(full)
    assert played.status is RunStatus.failed
    assert played.state.reason.startswith("the brief alone does not fit the model's context")


def test_a_handover_that_fails_leaves_the_fresh_context_with_what_was_measured() -> None:
    script = [FRONTIER, context_exceeded(), Status(400, message="no")]
    played = play(script)
    assert any("could not hand over" in notice for notice in played.notices)
    assert contexts(played)[3] == 1
    assert played.status is RunStatus.finished


def test_a_conversation_that_the_model_does_not_take_up_again_goes_on_afresh() -> None:
    changed = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to"
    refused = Status(400, message=f"{changed} a different conversation. Remove the block.")
    played = play([FRONTIER, refused, refused])
    assert contexts(played)[3] == 1
    assert played.status is RunStatus.finished


def test_an_endless_limit_ends_with_the_wall_clock_though_each_wait_is_long() -> None:
    spec = replace(SPEC, budgets=Budgets(wall_clock_s=1.2))
    played = play([Status(429, retry_after="600")], spec, patience={"sleep": time.sleep})
    assert played.status is RunStatus.finished
    assert "wall clock" in played.state.reason


def test_closing_words_that_cannot_be_had_leave_those_of_the_harness() -> None:
    played = play([FRONTIER], closing=Status(500), patience={"attempts": 2})
    assert played.status is RunStatus.finished
    assert (played.state.summary or "").startswith("Measured by the harness")


def test_pausing_cuts_the_reply_and_resuming_asks_again() -> None:
    pause = ControlPayload(ControlAction.pause, "ada", request=1)
    resume = ControlPayload(ControlAction.resume, "ada", request=2)
    control = Requests(None, None, None, pause, pause, resume)
    played = play([Silent(30, LONG, 5), FRONTIER], control=control)
    assert "The turn was given up: ada asked for a pause." in played.notices
    assert played.requests[1] == played.requests[0]
    assert played.status is RunStatus.finished


def test_words_of_an_error_are_short_on_one_line_and_without_keys() -> None:
    assert faults.scrub("a\nb  sk-ant-api03-abcdefgh x") == "a b *** x"
    assert len(faults.scrub("x" * 9_999)) == faults.WORDS_CHARACTERS
