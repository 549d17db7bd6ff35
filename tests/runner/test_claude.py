"""Claude as an agent, through the real SDK: conversations, tools, thinking, caching, costs."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner import agents
from runner.agents import claude
from runner.conversation import Call
from runner.events import ControlAction, ControlPayload, EventType, MessageKind, RunStatus
from runner.loop import Interrupted
from runner.messages import pricing
from runner.spec import AgentSpec, Budgets
from tests.runner.claude_runs import CLOSING, FINISH, SPEC, HintedLog, Played, play, write
from tests.runner.fakes import FakeEvaluator, Requests, by_first_line
from tests.runner.messages_rules import without_breakpoints
from tests.runner.messages_server import (
    KEY,
    Reply,
    Response,
    Text,
    Thinking,
    ToolUse,
    reply,
)

LOOK = reply(Thinking("What is there?"), Text("I look."), ToolUse("list_zoo"), ToolUse("frontier"))
DEEP = '{"candidate": ' + "[" * 300 + "]" * 300 + "}"  # JSON, and meant to break something
NOTE = reply(ToolUse("write_note", {"text": "1.5 it is."}))
BENCHMARK = reply(Text("Now measure."), ToolUse("benchmark", {"candidate": 1}))


def results_of(request: dict[str, Any]) -> list[dict[str, Any]]:
    return [b for b in request["messages"][-1]["content"] if b["type"] == "tool_result"]


def texts_of(request: dict[str, Any]) -> list[str]:
    return [b["text"] for b in request["messages"][-1]["content"] if b["type"] == "text"]


def test_a_conversation_writes_a_candidate_measures_it_and_ends_with_closing_words() -> None:
    played = play([LOOK, reply(write("1.5")), BENCHMARK])
    assert played.server.refused == []
    assert played.status is RunStatus.finished
    assert played.state.best == 1
    assert played.state.summary is not None
    assert played.state.summary.startswith("Two ideas were tried.")
    assert "1.50× over torch" in played.state.summary


def test_each_request_has_the_system_prompt_the_tools_and_the_default_model() -> None:
    first = play().requests[0]
    assert first["model"] == pricing.DEFAULT_MODEL
    assert first["output_config"] == {"effort": "medium"}
    assert first["thinking"] == {"type": "adaptive", "display": "summarized"}
    assert "softmax_fp32" in first["system"][0]["text"]
    assert {"write_candidate", "benchmark", "finish"} <= {tool["name"] for tool in first["tools"]}
    assert first["max_tokens"] == claude.TURN_TOKENS


def test_calls_made_in_one_turn_are_answered_in_one_message_in_their_order() -> None:
    played = play([LOOK])
    made = [block["id"] for block in played.requests[1]["messages"][1]["content"] if "id" in block]
    assert [block["tool_use_id"] for block in results_of(played.requests[1])] == made
    assert len(made) == 2


def test_thinking_comes_back_unchanged_the_redacted_too() -> None:
    hidden = Thinking("nobody reads this", redacted=True)
    first = reply(Thinking("One. " * 40), hidden, Text("Go."), ToolUse("frontier"))
    played = play([first])
    blocks = played.requests[1]["messages"][1]["content"]
    assert [b["type"] for b in blocks] == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert blocks[0]["thinking"] == "One. " * 40
    assert list(played.turns[0].content) == without_breakpoints(blocks)
    assert played.server.refused == []  # the server checks each signature, and what stands before


def test_the_text_is_shown_while_it_streams() -> None:
    slow = Reply((Text("word " * 30), ToolUse("frontier")), pace_s=0.03)
    hints = play([slow]).log.hints
    growing = [hint for hint in hints if hint.startswith("word")]
    assert len(growing) > 2
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(growing))


def test_a_turn_that_says_nothing_beside_its_thinking_shows_that() -> None:
    played = play([reply(Thinking("The rows fit."), ToolUse("frontier"))])
    assert played.turns[0].text == "The rows fit."
    assert "The rows fit." in played.log.hints


def test_the_prompt_is_cached_behind_the_system_prompt_and_the_last_two_messages() -> None:
    played = play([LOOK, reply(write("1.5")), BENCHMARK])
    request = played.requests[3]
    assert request["system"][0]["cache_control"] == {"type": "ephemeral"}
    marked = [
        (number, index)
        for number, message in enumerate(request["messages"])
        for index, block in enumerate(message["content"])
        if "cache_control" in block
    ]
    assert marked == [(4, 0), (6, 0)]
    assert played.usages[0].cache_read_tokens == 0
    assert all(usage.cache_read_tokens > 3000 for usage in played.usages[1:4])


def test_each_request_begins_with_the_bytes_of_the_one_before() -> None:
    played = play([LOOK, reply(write("1.5")), BENCHMARK])
    plain = [json.dumps(without_breakpoints(r["messages"]))[:-1] for r in played.requests[:4]]
    for earlier, later in itertools.pairwise(plain):
        assert later.startswith(earlier)
    fixed = [json.dumps([r["system"], r["tools"]]) for r in played.requests[:4]]
    assert len(set(fixed)) == 1


class StopAfter:
    """Lets a run go on for so many events, then ends the process that drives it."""

    def __init__(self, log: HintedLog, events: int) -> None:
        self._log, self._events = log, events

    def poll(self, after: int) -> ControlPayload | None:
        if len(self._log.events) >= self._events:
            raise Interrupted("the worker shuts down")
        return None

    def pause(self) -> None:
        raise AssertionError("nobody paused")


def test_a_run_taken_up_by_another_driver_asks_with_the_same_bytes() -> None:
    script = [LOOK, reply(write("1.5")), BENCHMARK]
    whole = play(list(script))
    cut = HintedLog()
    with pytest.raises(Interrupted):
        play(list(script), log=cut, control=StopAfter(cut, 12))
    asked = sum(event.type is EventType.budget for event in cut.events)
    resumed = play(script[2:], log=cut)
    assert asked == 2
    assert resumed.server.refused == []
    again = without_breakpoints(resumed.requests[0]["messages"])
    assert len(again) == len(whole.requests[2]["messages"])
    assert again[0] == without_breakpoints(whole.requests[2]["messages"][0])
    assert resumed.state.evaluations.keys() == {1}


def facts(played: Played) -> Any:
    """What a run found, whatever its events are numbered."""
    state = played.state
    return (
        [(each.number, each.idea, each.source_sha256) for each in state.candidates.values()],
        state.evaluations,
        [note.text for note in state.notes],
        [result["ok"] for result in played.results],
        len(state.calls),
        state.summary,
    )


def test_a_run_cut_after_any_event_goes_on_as_if_undisturbed() -> None:
    steps = [LOOK, reply(Thinking("Now."), write("1.5")), BENCHMARK, NOTE]

    def script(request: dict[str, Any]) -> Response:
        if not request.get("tools"):
            return CLOSING
        turns = sum(message["role"] == "assistant" for message in request["messages"])
        return steps[turns] if turns < len(steps) else FINISH

    whole = play(script)
    for count in range(1, len(whole.log.events)):
        again = play(script, log=HintedLog(whole.log.events[:count], whole.log.artifacts))
        assert again.server.refused == [], count
        assert again.status is RunStatus.finished, count
        assert facts(again) == facts(whole), count


def test_a_steering_note_is_told_behind_the_results() -> None:
    note = ControlPayload(ControlAction.steer, "ada", "try streaming stores", request=1)
    played = play([LOOK, reply(ToolUse("frontier"))], control=Requests(None, None, note))
    told = played.requests[1]
    kinds = [block["type"] for block in told["messages"][-1]["content"]]
    assert kinds == ["tool_result"] * (len(kinds) - 1) + ["text"]
    assert texts_of(told) == ["ada, a person who watches this run, says: try streaming stores"]


def test_an_unknown_tool_is_a_structured_error_and_the_run_goes_on() -> None:
    played = play([reply(ToolUse("launch_rocket", {"to": "moon"}))])
    error = json.loads(played.results[0]["text"])["error"]
    assert error["field"] == "tool"
    assert error["remedy"].startswith("Use: ")
    assert results_of(played.requests[1])[0]["is_error"] is True
    assert played.status is RunStatus.finished


@pytest.mark.parametrize(
    "raw",
    ['{"candidate": 1', "[1, 2]", '{"candidate": NaN}', '{"candidate": ' + "[" * 100_000, DEEP],
    ids=["torn", "a list", "no number", "endless", "deep"],
)
def test_a_malformed_input_is_a_structured_error_and_the_run_goes_on(raw: str) -> None:
    played = play([reply(ToolUse("benchmark", raw=raw))])
    error = json.loads(played.results[0]["text"])["error"]
    assert error["field"] == "arguments"
    assert played.turns[0].calls[0].malformed == raw
    assert played.server.refused == []
    assert played.status is RunStatus.finished


def test_a_call_without_arguments_has_none() -> None:
    assert play([reply(ToolUse("frontier", raw=""))]).turns[0].calls[0].malformed == ""


def test_lone_surrogates_of_a_model_break_neither_log_nor_request() -> None:
    broken = reply(Text("a\ud83d!"), ToolUse("write_note", {"text": "b\udc00 and more"}))
    played = play([broken])
    assert played.server.refused == []
    assert played.turns[0].text == "a?!"
    assert played.state.notes[0].text == "b? and more"


def test_an_empty_text_is_not_sent_back() -> None:
    played = play([reply(Text(""), Text(" \n"), ToolUse("frontier"))])
    blocks = played.requests[1]["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["tool_use"]


def test_a_turn_of_nothing_at_all_is_nudged() -> None:
    played = play([reply()])
    assert played.server.refused == []
    assert "You called no tool" in texts_of(played.requests[1])[-1]
    assert played.status is RunStatus.finished


def test_what_a_turn_costs_is_in_the_log() -> None:
    played = play([LOOK])
    usage = played.usages[0]
    model = pricing.find(usage.model)
    assert model is not None
    assert usage.dollars == pytest.approx(
        model.dollars(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )
    )
    assert played.state.dollars == pytest.approx(sum(each.dollars or 0 for each in played.usages))
    assert len(played.usages) == len(played.requests)


def test_a_model_without_a_price_has_no_dollars_and_its_tokens_count() -> None:
    played = play([], model="house-model")
    assert played.state.dollars is None
    assert played.state.tokens > 0


def test_a_budget_of_dollars_stops_a_costly_run_and_keeps_its_results() -> None:
    def costly(request: dict[str, Any]) -> Response:
        if not request.get("tools"):
            return CLOSING
        turn = sum(message["role"] == "assistant" for message in request["messages"])
        call = write(f"1.{turn + 1}") if turn % 2 == 0 else ToolUse("benchmark", {"candidate": 1})
        return reply(Text("More."), call, tokens=20_000)

    spec = replace(SPEC, budgets=Budgets(evaluations=100, dollars=2.5))
    played = play(costly, spec)
    assert played.status is RunStatus.finished
    assert "$2.50 used" in played.state.reason
    assert played.state.dollars is not None
    assert 1.5 < played.state.dollars < 2.5
    assert played.state.best == 1
    assert "1.10×" in (played.state.summary or "")


def test_a_reply_may_not_be_longer_than_the_tokens_that_are_left() -> None:
    budgets = Budgets(tokens=30_000)
    first = play([], replace(SPEC, budgets=budgets)).requests[0]
    assert claude.LEAST_TOKENS <= first["max_tokens"] < 22_000


def test_a_reply_may_not_cost_more_than_the_dollars_that_are_left() -> None:
    budgets = Budgets(dollars=0.2)
    first = play([], replace(SPEC, budgets=budgets)).requests[0]
    assert claude.LEAST_TOKENS <= first["max_tokens"] < 10_000


def test_a_model_that_is_free_keeps_a_budget_of_dollars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = "input = 0\noutput = 0\ncache_read = 0\ncache_write = 0\n"
    sizes = "context_tokens = 100_000\nmax_output_tokens = 9_000\n"
    table = tmp_path / "free.toml"
    table.write_text(f"date = 2026-11-30\n[models.own]\n{free}{sizes}", encoding="utf-8")
    monkeypatch.setenv(pricing.VARIABLE, str(table))
    spec = replace(SPEC, model="own", budgets=Budgets(dollars=0.01))
    played = play([], spec, model="own")
    assert played.requests[0]["max_tokens"] == 9_000
    assert played.state.dollars == 0.0


def test_a_nearly_full_context_is_handed_over_to_a_fresh_one() -> None:
    script = [
        reply(write("1.5")),
        reply(ToolUse("benchmark", {"candidate": 1}), tokens=7_000),
        reply(Text("Vectors paid; streaming is next.")),
    ]
    played = play(script, context_tokens=14_000)
    assert played.server.refused == []
    handover, fresh = played.requests[2], played.requests[3]
    assert "Call no tool" in texts_of(handover)[-1]
    assert handover["tools"] == played.requests[0]["tools"]
    assert len(fresh["messages"]) == 1
    assert "Vectors paid; streaming is next." in texts_of(fresh)[0]
    assert "c1: 1.50×" in texts_of(fresh)[0]
    assert played.status is RunStatus.finished
    assert len(played.messages(MessageKind.brief)) == 2


def test_a_turn_cut_at_its_longest_is_kept_and_nudged() -> None:
    long = reply(Text("On and on"), stop="max_tokens")
    played = play([long])
    assert played.turns[0].stop == "max_tokens"
    assert "cut off" in texts_of(played.requests[1])[-1]


def test_a_call_cut_at_the_longest_turn_is_malformed_and_nothing_worse() -> None:
    torn = reply(ToolUse("write_candidate", raw='{"source": "// 1.5'), stop="max_tokens")
    unbegun = reply(ToolUse("write_candidate", raw=""), stop="max_tokens")
    played = play([torn, unbegun])
    assert [bool(turn.calls[0].malformed) for turn in played.turns[:2]] == [True, True]
    assert played.state.candidates == {}
    assert played.status is RunStatus.finished


def test_a_refusal_is_nudged_and_the_refused_turn_is_not_shown_again() -> None:
    refused = reply(Text("I can"), ToolUse("frontier"), stop="refusal", refused_as="frontier_llm")
    played = play([refused])
    assert played.turns[0].calls == ()
    roles = [message["role"] for message in played.requests[1]["messages"]]
    assert roles == ["user"]
    words = "The model's safeguards refused to answer (its policy: frontier_llm)."
    assert played.notices == [words]
    assert "refused by your provider's safeguards" in texts_of(played.requests[1])[-1]
    assert played.status is RunStatus.finished


def test_a_model_that_goes_on_refusing_fails_the_run_with_that_reason() -> None:
    refused = reply(Text("I cannot."), stop="refusal")
    played = play([refused] * 4)
    assert played.status is RunStatus.failed
    assert played.state.reason.startswith("the model refused")


def test_closing_words_are_asked_for_alone_and_briefly() -> None:
    closing = play([LOOK]).requests[-1]
    assert "tools" not in closing
    assert len(closing["messages"]) == 1
    assert closing["max_tokens"] == claude.CLOSING_TOKENS
    assert closing["output_config"] == {"effort": "low"}


def test_thinking_alone_is_no_closing_word() -> None:
    played = play(closing=reply(Thinking("Hmm, hmm."), stop="max_tokens"))
    assert (played.state.summary or "").startswith("Measured by the harness")


def test_an_older_model_is_asked_without_thinking_and_effort() -> None:
    first = play([], model="claude-haiku-4-5").requests[0]
    assert "thinking" not in first
    assert "output_config" not in first


def test_the_key_is_in_no_event_and_no_artifact() -> None:
    played = play([LOOK, reply(write("1.5")), BENCHMARK])
    sent = [
        header.get("authorization", "") + header.get("x-api-key", "")
        for header in played.server.headers
    ]
    assert all(KEY in each for each in sent)
    kept = [json.dumps(event.payload) for event in played.log.events] + played.log.hints
    assert not any(KEY in text for text in kept)
    assert not any(KEY.encode() in content for content in played.log.artifacts.values())


def test_the_agent_is_offered_and_created_with_its_defaults() -> None:
    assert "claude" in agents.names()
    agent = agents.create(AgentSpec("claude"))
    assert agent == claude.ClaudeAgent(pricing.DEFAULT_MODEL, "medium")
    assert agents.create(AgentSpec("claude", "claude-sonnet-5-5", "high")) == claude.ClaudeAgent(
        "claude-sonnet-5-5", "high"
    )


def test_without_a_key_the_agent_says_why_it_cannot_be_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "anything")
    assert claude.available() == ""
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert claude.available() == "ANTHROPIC_API_KEY is not set"


def test_a_key_taken_away_fails_the_run_with_that_reason() -> None:
    played = play([], key="")
    assert played.status is RunStatus.failed
    assert played.state.reason.startswith("ANTHROPIC_API_KEY is not set where this agent runs")


def test_a_stopped_run_ends_with_the_call_unanswered_and_no_crash() -> None:
    stop = ControlPayload(ControlAction.stop, "ada", request=1)
    control = Requests(None, None, stop)
    played = play([LOOK], control=control, evaluator=FakeEvaluator(by_first_line))
    assert played.status is RunStatus.stopped
    assert played.turns[0].calls[0] == Call(played.turns[0].calls[0].id, "list_zoo")
