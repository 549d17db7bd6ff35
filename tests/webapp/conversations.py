"""A run of an agent that talks and uses tools, event by event as the loop writes it.

Every number here is made up for a test.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from runner.conversation import DETAILS, TURN, Call, Turn, call_name
from runner.events import (
    BudgetPayload,
    CandidatePayload,
    ControlAction,
    ControlPayload,
    EvaluationPayload,
    MessageKind,
    MessagePayload,
    NotePayload,
    ToolCallPayload,
    ToolResultPayload,
    Usage,
)
from runner.loop import HARNESS
from runner.spec import Budgets
from runner.tools import refusal
from runner.wire import canonical, to_json
from tests.factories import make_evaluation, make_event, make_run
from webapp.runs.models import Run

MODEL = "claude-opus-5-5"
LIMITS = Budgets(evaluations=24, wall_clock_s=900.0, tokens=2_000_000, dollars=5.0)


class Talk:
    """Appends to the log of a run; `usage` adds up as a driver would."""

    def __init__(self, agent: str = "claude", **spec: Any) -> None:
        given = {"agent": agent, "model": MODEL, "effort": "medium", "budgets": LIMITS, **spec}
        self.run: Run = make_run("running", **given)
        self.agent = agent
        self.tokens, self.dollars = 0, 0.0
        self.limits = self.run.spec.budgets

    def brief(self, stage: str, ordinal: int, text: str = "Make softmax fast.") -> None:
        make_event(
            self.run,
            MessagePayload(self.agent, text, MessageKind.brief, stage=stage, ordinal=ordinal),
        )

    def turn(
        self, text: str, *calls: Call, dollars: float | None = 0.03, model: str = MODEL
    ) -> int:
        """One turn with its usage; returns its seq."""
        usage = Usage(model, 900, 700, 11_000, 400, dollars)
        turn = Turn(text, calls, usage=usage)
        message = MessagePayload(self.agent, text, usage=usage)
        event = make_event(self.run, message, {TURN: canonical(to_json(turn)).encode()})
        self.spent(usage)
        return event.seq

    def spent(self, usage: Usage) -> None:
        self.tokens += usage.tokens
        known = usage.dollars is not None
        dollars = self.dollars + (usage.dollars or 0.0) if known else None
        make_event(
            self.run,
            BudgetPayload(self.run.evaluations, 40.0, self.limits, self.tokens, dollars),
        )
        self.dollars += usage.dollars or 0.0

    def call(
        self, name: str, tool: str, answer: str, ok: bool = True, details: str = "", **given: Any
    ) -> None:
        """A call and its answer, with nothing in between."""
        self.called(name, tool, **given)
        self.answered(name, answer, ok, details)

    def called(self, name: str, tool: str, **given: Any) -> None:
        make_event(self.run, ToolCallPayload(name, tool, given))

    def answered(self, name: str, answer: str, ok: bool = True, details: str = "") -> None:
        artifacts = {DETAILS: details.encode()} if details else None
        make_event(self.run, ToolResultPayload(name, ok, answer), artifacts)

    def candidate(self, source: str, idea: str, call: str, parent: int | None = None) -> int:
        number = self.run.candidates.count() + 1
        payload = CandidatePayload(
            number=number,
            parent=parent,
            language="cpp",
            idea=idea,
            author=self.agent,
            source_sha256=hashlib.sha256(source.encode()).hexdigest(),
            call=call,
        )
        make_event(self.run, payload, {f"c{number}.cpp": source.encode()})
        return number

    def evaluated(
        self, number: int, scope: str = "", verdict: str = "passed", speedup: float = 1.2
    ) -> None:
        evaluation = make_evaluation(verdict, None if scope == "check" else speedup)
        make_event(self.run, EvaluationPayload(number, evaluation, scope))

    def harness(self, text: str, kind: MessageKind) -> None:
        make_event(self.run, MessagePayload(HARNESS, text, kind))

    def control(self, action: ControlAction, text: str = "", **limits: Any) -> None:
        budgets = replace(self.limits, **limits) if limits else None
        self.limits = budgets or self.limits
        make_event(self.run, ControlPayload(action, "bob", text, budgets))

    def note(self, text: str, call: str) -> None:
        make_event(self.run, NotePayload(self.agent, text, call))

    def summary(self, text: str) -> None:
        make_event(self.run, MessagePayload(self.agent, text, MessageKind.summary))


SOURCE = """#include <cmath>
constexpr int UNROLL = {unroll};
extern "C" void softmax_fp32(const float* x, float* y, long rows, long cols) {{
    for (long row = 0; row < rows; ++row) y[row * cols] = std::exp(x[row * cols]);
}}
"""


def softmax_talk() -> Talk:
    """Two stages, a refusal, a check, a wrong candidate, a note of a person, a throttled model."""
    talk = Talk()
    talk.brief("research", 1, "Look at what is known.\n" + "The contract is long.\n" * 40)
    zoo, knowledge = Call("a", "list_zoo"), Call("b", "search_knowledge", {"query": "row-wise"})
    seq = talk.turn("I first look at the zoo and at what knowledge holds.", zoo, knowledge)
    talk.call(call_name(seq, 0), "list_zoo", "2 kernels: softmax_rows (cpp), softmax_tile (triton)")
    talk.call(call_name(seq, 1), "search_knowledge", "no entry fits", query="row-wise softmax")
    talk.harness(
        "The model is overloaded (529); trying again in 8 s, attempt 3 of 8.", MessageKind.notice
    )
    talk.brief("write", 2)
    source = SOURCE.format(unroll=1)
    seq = talk.turn(
        "One pass over each row for the maximum, one for the sum; the row stays in L2.",
        Call("c", "write_candidate", {"source": source, "idea": "one row at a time"}),
    )
    name = call_name(seq, 0)
    talk.called(name, "write_candidate", idea="one row at a time", source=source)
    talk.candidate(source, "one row at a time, two passes", name)
    talk.answered(name, "c1 is written: clean.\nNo finding.\n" + "line\n" * 30, details="x" * 5000)
    seq = talk.turn("")
    talk.called(call_name(seq, 0), "check", candidate=1)
    talk.evaluated(1, "check")
    talk.answered(call_name(seq, 0), "c1 passed the check of 7 cases")
    seq = talk.turn("It is right; now measured.")
    talk.called(call_name(seq, 0), "benchmark", candidate=1)
    talk.evaluated(1)
    talk.answered(call_name(seq, 0), "c1 passed: 1.20× over torch")
    talk.control(ControlAction.steer, "Try streaming stores before a wider unroll.")
    fault = refusal("candidate", "there is no c7.", "Use one of: c1.")
    talk.call(call_name(seq, 1), "benchmark", fault.text, ok=False, candidate=7)
    talk.harness("You called no tool. Only tools move this run on.", MessageKind.nudge)
    source = SOURCE.format(unroll=4)
    seq = talk.turn("Four rows at once hide the latency of exp.")
    name = call_name(seq, 0)
    talk.called(name, "edit_candidate", parent=1, old="UNROLL = 1", new="UNROLL = 4")
    talk.candidate(source, "four rows at once", name, parent=1)
    talk.answered(name, "c2 is written: clean.")
    talk.called(call_name(seq, 1), "benchmark", candidate=2, case="4096x2048-fp32")
    talk.evaluated(2, "case 4096x2048-fp32", speedup=1.7)
    talk.answered(call_name(seq, 1), "c2 passed on one case: 1.70× over torch")
    talk.note("Four rows at once gained 1.42× on 4096x2048: exp is what a row waits for.", "e9.9")
    talk.control(ControlAction.extend, evaluations=40, dollars=8.0)
    return talk
