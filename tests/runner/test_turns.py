"""Turns of agents that talk: what they are told, when they end, and what a run always says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from runner import prompts
from runner.agents import Agent, ContextFull
from runner.agents.scripted import ScriptedConversant
from runner.conversation import Call, Turn
from runner.drive import drive
from runner.events import (
    BudgetPayload,
    ControlAction,
    ControlPayload,
    EventType,
    MessageKind,
    MessagePayload,
    RunStatus,
    ToolResultPayload,
    Usage,
)
from runner.log import MemoryLog
from runner.loop import Control, Loop, TurnCut
from runner.results import Evaluation, Verdict
from runner.spec import Budgets, RunSpec
from runner.state import RunState
from runner.tools import Tool
from tests.runner.fakes import (
    Asked,
    FakeEvaluator,
    Requests,
    Seconds,
    bench,
    by_first_line,
    finish,
    make_evaluation,
    make_log,
    only,
    spending,
    stop_by,
    talker,
    turn,
    write,
)

FIRST_CASE = "2048x2048-fp32"
BUDGETS = Budgets(evaluations=10, wall_clock_s=1e5)


def run(
    agent: Agent, budgets: Budgets = BUDGETS, control: Control | None = None, **spec: Any
) -> MemoryLog:
    log = make_log()
    control = control or Requests()
    wanted = RunSpec("softmax", budgets=budgets, **spec)
    drive(wanted, log, FakeEvaluator(by_first_line), control, clock=Seconds(), create=only(agent))
    return log


def said(log: MemoryLog, kind: MessageKind) -> list[str]:
    payloads = (event.decoded for event in log.events if event.type is EventType.message)
    return [each.text for each in payloads if each.kind is kind]


def results(log: MemoryLog) -> list[ToolResultPayload]:
    return [event.decoded for event in log.events if event.type is EventType.tool_result]


def ending(log: MemoryLog) -> str:
    end = log.events[-1].decoded
    return f"{end.status}: {end.reason}"


LISTING: tuple[str, dict[str, Any]] = ("list_zoo", {})
UNKNOWN_CANDIDATE = bench(7)
UNKNOWN_KERNEL: tuple[str, dict[str, Any]] = ("read_zoo", {"kernel": "nobody"})


def test_a_conversation_is_logged_call_by_call() -> None:
    log = run(talker(turn(write("1.5"), bench(1)), turn(finish()), closing="Rows fit the cache."))
    assert [event.type.value for event in log.events] == [
        *("run", "message", "message"),
        *("tool_call", "candidate", "tool_result"),
        *("tool_call", "evaluation", "budget", "tool_result"),
        *("message", "tool_call", "tool_result"),
        *("message", "run"),
    ]
    state = RunState.from_events(log.history())
    assert (state.best, state.turns) == (1, {"scripted": 2})
    assert ending(log).startswith("finished: the agent finished after 1 candidate; best c1: 1.50×")


def test_one_failing_call_repeated_is_pointed_out_and_then_ends_the_run() -> None:
    log = run(talker(*[turn(UNKNOWN_CANDIDATE)] * 20))
    assert ending(log) == (
        "failed: the agent repeated failing calls to no avail;"
        " no candidate passed with a measured speedup"
    )
    assert len(results(log)) == 6
    assert said(log, MessageKind.nudge) == [prompts.text("repeating")] * 3


def test_two_failing_calls_in_alternation_are_a_repetition_too() -> None:
    log = run(talker(*[turn(UNKNOWN_CANDIDATE), turn(UNKNOWN_KERNEL)] * 20))
    assert ending(log).startswith("failed: the agent repeated failing calls")
    assert len(results(log)) == 7


def test_a_call_that_works_in_between_starts_the_count_afresh() -> None:
    round_trip = [turn(UNKNOWN_CANDIDATE), turn(UNKNOWN_KERNEL), turn(LISTING)]
    log = run(talker(*round_trip * 5, turn(write("1.2"), bench(1)), turn(finish())))
    assert ending(log).startswith("finished: the agent finished")
    assert said(log, MessageKind.nudge) == []


def test_different_failing_calls_are_no_repetition() -> None:
    wrong = [turn(bench(number)) for number in range(10, 30)]
    log = run(talker(*wrong, turn(write("1.2"), bench(1)), turn(finish())))
    assert ending(log).startswith("finished: the agent finished")


def test_an_agent_that_only_talks_is_reminded_and_then_ends_the_run() -> None:
    log = run(talker(*[turn(text="I think that it is memory-bound.")] * 9))
    assert ending(log).startswith("failed: the agent called no tool in 3 turns")
    assert said(log, MessageKind.nudge) == [prompts.text("idle")] * 2


def test_malformed_json_and_unknown_tools_are_structured_errors_and_the_run_goes_on() -> None:
    broken = Turn(calls=(Call("a", "benchmark", malformed='{"candidate": 1'),))
    log = run(talker(broken, turn(("sudo", {})), turn(write("1.2"), bench(1)), turn(finish())))
    errors = [json.loads(each.text)["error"] for each in results(log) if not each.ok]
    assert [error["field"] for error in errors] == ["arguments", "tool"]
    assert all(error["remedy"] for error in errors)
    assert ending(log).startswith("finished: the agent finished after 1 candidate; best c1: 1.20×")


def test_progress_claimed_with_no_measurement_is_refused_once() -> None:
    claim = finish("It is ten times faster.")
    log = run(talker(turn(claim), turn(claim), closing="Ten times faster!"))
    refused, taken = results(log)
    assert "nothing has been measured" in json.loads(refused.text)["error"]["problem"]
    assert taken.ok
    assert said(log, MessageKind.summary) == [
        "Ten times faster!\n\nMeasured by the harness: no candidate passed with a measured speedup."
        " 0 candidates, 0 evaluations, 0 passed. Ended: the agent finished after 0 candidates."
    ]


def test_after_a_measurement_finish_is_taken_at_its_word() -> None:
    log = run(talker(turn(write("crashed"), bench(1)), turn(finish("It crashed."))))
    assert all(result.ok for result in results(log))


def test_a_candidate_that_is_faster_on_the_first_case_is_to_be_benchmarked_whole() -> None:
    def judge(source: str) -> Evaluation:
        ratio = by_first_line(source).speedup
        assert ratio is not None
        return make_evaluation(None, cases=[(FIRST_CASE, ratio), ("512x2048-fp32", ratio)])

    agent = talker(
        turn(write("1.2"), bench(1)),
        turn(write("1.1", "Slower."), bench(2, FIRST_CASE)),
        turn(write("1.5", "Faster."), bench(3, FIRST_CASE)),
        turn(LISTING),
        turn(bench(3)),
        turn(finish()),
    )
    log, spec = make_log(), RunSpec("softmax", budgets=BUDGETS)
    drive(spec, log, FakeEvaluator(judge), Requests(), clock=Seconds(), create=only(agent))
    told = said(log, MessageKind.nudge)
    assert told == [prompts.render("generalise", candidate="c3", case=FIRST_CASE)]
    assert RunState.from_events(log.history()).best == 3


def test_candidates_that_are_never_benchmarked_stay_in_the_log_unevaluated() -> None:
    log = run(talker(turn(write("1.2"), write("1.3", "Scratch."), bench(1)), turn(finish())))
    state = RunState.from_events(log.history())
    assert list(state.candidates) == [1, 2]
    assert (list(state.evaluations), state.frontier, state.pending) == ([1], (1,), ())


class Slow:
    """Talks until it is cut, then has closing words that take `needs` looks at the clock."""

    name = "slow"
    closing_s = 100.0

    def __init__(self, needs: int = 3) -> None:
        self.needs = needs

    def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        while True:
            loop.heed(Usage("a-model", 1000, 50, dollars=0.01))

    def hand_over(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        return Turn()

    def close(self, loop: Loop, reason: str) -> Turn:
        for _ in range(self.needs):
            loop.heed()
        return Turn("I ran out of time.", usage=Usage("a-model", 500, 20, dollars=0.005))


def test_a_wall_clock_that_ends_within_a_turn_leaves_time_for_the_closing_words() -> None:
    log = run(Slow(), Budgets(evaluations=3, wall_clock_s=1000))
    (summary,) = said(log, MessageKind.summary)
    assert summary.startswith("I ran out of time.\n\nMeasured by the harness: ")
    assert ending(log).startswith("finished: wall clock of 17 min used")
    assert said(log, MessageKind.notice) == ["The turn was given up: the wall clock is used."]


def test_closing_words_that_take_too_long_are_given_up_and_the_measured_line_stays() -> None:
    log = run(Slow(needs=10_000), Budgets(evaluations=3, wall_clock_s=1000))
    (summary,) = said(log, MessageKind.summary)
    assert summary.startswith("Measured by the harness: ")
    assert said(log, MessageKind.notice)[-1] == (
        "slow had no closing words: the time kept for them is used"
    )
    state = RunState.from_events(log.history())
    assert state.budget is not None
    assert state.budget.wall_clock_s < 1100


def test_the_time_for_closing_words_is_there_even_after_a_step_that_took_too_long() -> None:
    class Sleeper(FakeEvaluator):
        def evaluate(self, *arguments: Any) -> Any:
            clock.skip(5000)
            return super().evaluate(*arguments)

    class Skipping(Seconds):
        skipped = 0.0

        def skip(self, seconds: float) -> None:
            self.skipped += seconds

        def __call__(self) -> float:
            return super().__call__() + self.skipped

    class OneCall(Slow):
        def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
            return turn(write("1.3"), bench(1))

    log, clock = make_log(), Skipping()
    spec = RunSpec("softmax", budgets=Budgets(evaluations=3, wall_clock_s=1000))
    evaluator = Sleeper(by_first_line)
    drive(spec, log, evaluator, Requests(), clock=clock, create=only(OneCall()))
    (summary,) = said(log, MessageKind.summary)
    assert summary.startswith("I ran out of time.\n\nMeasured by the harness: best c1: 1.30×")


def test_a_run_out_of_tokens_stops_hard_and_keeps_what_was_measured() -> None:
    turns = [turn(write("1.4"), bench(1), **spending(9_000))]
    turns += [turn(LISTING, **spending(9_000))] * 50
    log = run(talker(*turns, closing="Out."), Budgets(10, 1e5, tokens=40_000))
    assert ending(log).startswith("finished: token budget of 40,000 used but for the closing words")
    state = RunState.from_events(log.history())
    assert (state.best, state.tokens) == (1, 27_000)
    assert said(log, MessageKind.summary)[0].startswith("Out.\n\nMeasured by the harness: best c1")


def test_a_run_out_of_dollars_stops_hard_and_keeps_what_was_measured() -> None:
    turns = [turn(write("1.4"), bench(1), **spending(2_000, 0.3))]
    turns += [turn(LISTING, **spending(2_000, 0.3))] * 50
    log = run(talker(*turns), Budgets(10, 1e5, dollars=1.0))
    assert ending(log).startswith("finished: budget of $1.00 used but for the closing words")
    state = RunState.from_events(log.history())
    assert state.best == 1
    assert state.dollars == pytest.approx(0.6)


def test_no_closing_words_are_asked_for_when_no_tokens_are_left_for_them() -> None:
    turns = [turn(LISTING, **spending(10_000)), turn(LISTING, **spending(29_000))]
    log = run(talker(*turns, closing="Out."), Budgets(10, 1e5, tokens=40_000))
    assert said(log, MessageKind.summary)[0].startswith("Measured by the harness")
    assert "No tokens are left" in said(log, MessageKind.notice)[-1]


def test_what_a_turn_cost_that_was_given_up_is_counted() -> None:
    class Cut(Slow):
        def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
            if loop.state.tokens:
                return turn(finish())
            raise TurnCut("the network went away", Usage("a-model", 900, 100, dollars=0.02))

    log = run(Cut())
    first = next(e.decoded for e in log.events if isinstance(e.decoded, BudgetPayload))
    assert (first.tokens, first.dollars) == (1000, 0.02)


def test_a_stop_within_a_turn_cuts_it_and_the_closing_words_still_come() -> None:
    log = make_log()
    spec = RunSpec("softmax", budgets=BUDGETS)
    control = Asked((5, stop_by("alice")))
    evaluator = FakeEvaluator(by_first_line)
    status = drive(spec, log, evaluator, control, clock=Seconds(), create=only(Slow()))
    assert status is RunStatus.stopped
    assert said(log, MessageKind.notice) == ["The turn was given up: alice asked for a stop."]
    assert said(log, MessageKind.summary)[0].startswith("I ran out of time.")


def test_a_stop_that_waits_behind_a_note_cuts_the_turn_as_well() -> None:
    log = make_log()
    note = ControlPayload(ControlAction.steer, "alice", "Try AVX-512.")
    control = Asked((5, note), (5, stop_by("bob")))
    evaluator = FakeEvaluator(by_first_line)
    spec = RunSpec("softmax", budgets=BUDGETS)
    drive(spec, log, evaluator, control, clock=Seconds(), create=only(Slow()))
    assert said(log, MessageKind.notice) == ["The turn was given up: bob asked for a stop."]
    actions = [event.decoded.action for event in log.events if event.type is EventType.control]
    assert actions == [ControlAction.steer, ControlAction.stop]


def test_failed_proposals_count_after_a_resumption_as_they_did_before_it() -> None:
    lines = ("compile_error", "wrong_values", "crashed", "1.3", "compile_error", "1.4")
    turns = [turn(write(line, str(i)), bench(i)) for i, line in enumerate(lines, start=1)]
    agent, budgets = talker(*turns), Budgets(5, 1e5)
    whole = run(agent, budgets)
    assert ending(whole).startswith("finished: evaluation budget of 5 used; best c4: 1.30×")
    for cut in range(1, len(whole.events)):
        log = make_log(whole.events[:cut], whole)
        evaluator = FakeEvaluator(by_first_line)
        spec = RunSpec("softmax", budgets=budgets)
        drive(spec, log, evaluator, Requests(), clock=Seconds(), create=only(agent))
        state = RunState.from_events(log.history())
        verdicts = [evaluation.verdict for evaluation in state.evaluations.values()]
        assert verdicts[:3] == [Verdict.compile_error, Verdict.wrong_values, Verdict.crashed]
        assert (state.evaluations_used, len(state.candidates)) == (5, 5), f"cut after {cut}"


def test_a_context_that_is_full_before_a_turn_was_taken_in_it_fails_the_run_with_the_reason() -> (
    None
):
    class Full(ScriptedConversant):
        def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
            if loop.state.turns:
                raise ContextFull("the prompt is too long")
            return super().reply(loop, tools)

    faster = turn(write("1.4"), bench(1, FIRST_CASE))  # so that the fresh context has a nudge in it
    log = run(Full((faster,)))
    assert ending(log).startswith("failed: the brief alone does not fit the model's context")
    assert len(said(log, MessageKind.brief)) == 2


def test_an_agent_without_a_word_at_the_end_leaves_the_measured_line() -> None:
    log = run(talker(turn(write("1.5"), bench(1)), turn(finish())))
    payload = next(e.decoded for e in log.events[::-1] if isinstance(e.decoded, MessagePayload))
    assert payload.kind is MessageKind.summary
    assert payload.text.startswith("Measured by the harness: best c1: 1.50× over torch")
