"""Conversations as the API's messages, where a log is cut; and the server that stands in for it."""

from __future__ import annotations

import copy
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from runner.conversation import Call, Turn
from runner.events import RunStatus
from runner.local import LocalEvaluator
from runner.loop import Answer, Loop
from runner.messages import transcript
from runner.messages.draft import Draft
from runner.results import Verdict
from tests.runner.claude_runs import CLOSING, FINISH, SPEC, play
from tests.runner.fakes import FakeEvaluator, Requests, by_first_line, make_log
from tests.runner.messages_server import (
    KEY,
    MessagesServer,
    Text,
    Thinking,
    ToolUse,
    reply,
    softmax_optimisation,
)

CALLS = (Call("toolu_a", "frontier"), Call("toolu_b", "list_zoo"))
CONTENT = tuple(
    {"type": "tool_use", "id": call.id, "name": call.tool, "input": {}} for call in CALLS
)


def opened() -> Loop:
    """A loop in whose conversation two calls were made, and neither is answered."""
    loop = Loop(SPEC, make_log(), FakeEvaluator(by_first_line), Requests())
    loop.open()
    loop.brief("claude", "goal", 1, "Make it fast.")
    loop.take_turn("claude", Turn("Go.", CALLS, CONTENT))
    return loop


def answer(loop: Loop, text: str, ok: bool = True) -> None:
    assert loop.next_call is not None
    name, call = loop.next_call
    loop.begin_call(name, call)
    loop.end_call(name, Answer(text, ok=ok))


def test_a_call_that_was_never_answered_is_answered_with_an_error() -> None:
    loop = opened()
    answer(loop, "nothing yet")
    last = transcript.messages(loop)[-1]["content"]
    assert last[0] == {"type": "tool_result", "tool_use_id": "toolu_a", "content": "nothing yet"}
    assert (last[1]["tool_use_id"], last[1]["is_error"]) == ("toolu_b", True)
    assert last[1]["content"] == transcript.UNANSWERED


def test_results_stand_before_what_was_said_in_between() -> None:
    loop = opened()
    answer(loop, "first")
    loop.nudge("Hurry.")
    answer(loop, "second", ok=False)
    kinds = [block["type"] for block in transcript.messages(loop)[-1]["content"]]
    assert kinds == ["tool_result", "tool_result", "text"]


def test_an_answer_of_nothing_says_so() -> None:
    loop = opened()
    answer(loop, "")
    assert transcript.messages(loop)[-1]["content"][0]["content"] == transcript.NOTHING


def test_last_words_are_told_at_the_end_and_kept_nowhere() -> None:
    loop = opened()
    assert transcript.messages(loop, "Sum up.")[-1]["content"][-1]["text"] == "Sum up."
    assert "Sum up." not in json.dumps(transcript.messages(loop))


def test_a_draft_counts_what_streamed_until_the_api_counts_it() -> None:
    draft = Draft("claude-opus-5-5")
    assert draft.usage is None
    start = {"usage": {"input_tokens": 1_000_000, "output_tokens": 1}}
    draft.add({"type": "message_start", "message": start})
    block = {"type": "text", "text": ""}
    draft.add({"type": "content_block_start", "index": 0, "content_block": block})
    delta = {"type": "text_delta", "text": "x" * 3000}
    draft.add({"type": "content_block_delta", "index": 0, "delta": delta})
    assert draft.usage is not None
    assert (draft.usage.output_tokens, draft.usage.dollars) == (1000, pytest.approx(4.02))
    done = {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 700}}
    draft.add({"type": "message_delta", **done})
    assert draft.usage is not None
    assert draft.usage.output_tokens == 700


def test_an_event_of_a_kind_that_we_do_not_know_is_passed_over() -> None:
    draft = Draft("claude-opus-5-5")
    draft.add({"type": "weather", "sun": True})
    assert draft.turn() == Turn()


def test_softmax_is_optimised_on_the_host_by_the_script() -> None:
    """The real evaluator on the quick cases: a plain kernel, two better ones and a wrong one."""
    spec = replace(SPEC, case_set="host-quick")
    evaluator = LocalEvaluator(Event(), lambda phase: None)
    played = play(softmax_optimisation(), spec, evaluator=evaluator)
    assert played.server.refused == []
    assert played.status is RunStatus.finished
    assert all(result["ok"] for result in played.results), played.results
    state = played.state
    assert sorted(state.evaluations) == [1, 2, 4]
    assert all(each.verdict is Verdict.passed for each in state.evaluations.values())
    assert state.trials[3, "check"].verdict is Verdict.wrong_values
    assert (state.evaluations[2].speedup or 0) > 2 * (state.evaluations[1].speedup or 0)
    assert len(state.notes) == 1
    assert "Four candidates were written" in (state.summary or "")


def test_the_address_of_the_api_is_taken_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with MessagesServer([FINISH, FINISH, CLOSING]) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        played = play([], base_url=None)
        assert played.requests == []
        assert len(server.requests) == 3


def ask(server: MessagesServer, request: dict[str, Any], **headers: str) -> int:
    """The status of a raw request; an empty header is not sent."""
    usual = {
        "x-api-key": KEY,
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
    }
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    used = {name: value for name, value in {**usual, **sent}.items() if value}
    body = json.dumps(request).encode()
    made = urllib.request.Request(f"{server.url}/v1/messages", body, used)
    try:
        with urllib.request.urlopen(made, timeout=10) as response:
            response.read()
            return int(response.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    """A request that the API takes: a conversation of a few turns."""
    played = play([reply(Thinking("Hm."), Text("Go."), ToolUse("frontier"), ToolUse("list_zoo"))])
    return played.requests[1]


Change = Callable[[dict[str, Any]], Any]
CHANGES: dict[str, Change] = {
    "no messages": lambda r: r["messages"].clear(),
    "the assistant first": lambda r: r["messages"].pop(0),
    "the assistant last": lambda r: r["messages"].pop(),
    "an unanswered call": lambda r: r["messages"][2]["content"].pop(0),
    "an answer to nothing": lambda r: r["messages"][1]["content"].pop(),
    "a text before the results": lambda r: r["messages"][2]["content"].insert(
        0, {"type": "text", "text": "Well."}
    ),
    "an empty text": lambda r: r["messages"][0]["content"].append({"type": "text", "text": " "}),
    "changed thinking": lambda r: r["messages"][1]["content"][0].update(thinking="Ha."),
    "a changed brief": lambda r: r["messages"][0]["content"][0].update(text="Other."),
    "changed tools": lambda r: r["tools"].pop(),
    "no limit": lambda r: r.pop("max_tokens"),
    "a forced tool": lambda r: r.update(tool_choice={"type": "any"}),
    "thinking off": lambda r: r.update(thinking={"type": "disabled"}),
    "an unknown effort": lambda r: r["output_config"].update(effort="heroic"),
    "a temperature": lambda r: r.update(temperature=0.5),
    "one id twice": lambda r: r["messages"][1]["content"][3].update(
        id=r["messages"][1]["content"][2]["id"]
    ),
    "too many breakpoints": lambda r: [
        tool.update(cache_control={"type": "ephemeral"}) for tool in r["tools"]
    ],
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_the_server_refuses_what_the_api_refuses(good: dict[str, Any], change: Change) -> None:
    with MessagesServer([reply(Text("Well."))] * 2) as server:
        assert ask(server, good) == 200
        bad = copy.deepcopy(good)
        change(bad)
        assert ask(server, bad) == 400


def test_the_server_wants_a_key_and_a_version(good: dict[str, Any]) -> None:
    with MessagesServer([]) as server:
        assert ask(server, good, x_api_key="") == 401
        assert ask(server, good, x_api_key="sk-ant-wrong") == 401
        assert ask(server, good, anthropic_version="") == 400


def test_the_server_refuses_a_prompt_beyond_its_window(good: dict[str, Any]) -> None:
    with MessagesServer([], window_tokens=100) as server:
        assert ask(server, good) == 400
        assert server.refused[0].startswith("prompt is too long")
