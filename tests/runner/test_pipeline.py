"""The pipeline: its stages in order, what each may do and leaves, and when it goes round again."""

from __future__ import annotations

import json

import pytest

from runner import prompts, tools
from runner.agents import Agent, ContextFull
from runner.agents.scripted import ScriptedAgent, ScriptedConversant
from runner.conversation import BENCHMARK, FINISH, Turn
from runner.drive import drive
from runner.events import Event, EventType, MessageKind
from runner.log import MemoryLog
from runner.loop import Loop
from runner.spec import Budgets, RunSpec
from runner.stages import Stage
from runner.state import RunState
from runner.tools import Tool
from runner.workflows import pipeline
from tests.runner.fakes import (
    FakeEvaluator,
    Requests,
    Seconds,
    bench,
    by_constants,
    by_first_line,
    finish,
    make_log,
    only,
    talker,
    turn,
    write,
)

SPEC = RunSpec("softmax", workflow="pipeline", budgets=Budgets(evaluations=50, wall_clock_s=1e5))
STAGES = (pipeline.RESEARCH, *pipeline.ROUND)
DONE = turn(finish("Done here."))


def run(agent: Agent) -> MemoryLog:
    log, evaluator = make_log(), FakeEvaluator(by_first_line)
    drive(SPEC, log, evaluator, Requests(), clock=Seconds(), create=only(agent))
    return log


def briefs(log: MemoryLog) -> list[Event]:
    messages = (event for event in log.events if event.type is EventType.message)
    return [event for event in messages if event.decoded.kind is MessageKind.brief]


def stages(log: MemoryLog) -> list[str]:
    return [event.decoded.stage for event in briefs(log)]


def errors(log: MemoryLog) -> list[dict[str, str]]:
    results = (event.decoded for event in log.events if event.type is EventType.tool_result)
    return [json.loads(result.text)["error"] for result in results if not result.ok]


def test_it_goes_round_again_as_long_as_a_round_finds_something_faster() -> None:
    rounds = [
        [turn(write("1.2", "First."), bench(1)), DONE, DONE, DONE],
        [turn(write("1.5", "Second."), bench(2)), DONE, DONE, DONE],
        [turn(write("1.4", "Third."), bench(3)), DONE, DONE, DONE],
    ]
    log = run(talker(DONE, *[each for round_ in rounds for each in round_]))
    assert stages(log) == ["research", *["write", "profile", "propose"] * 3]
    assert log.events[-1].decoded.reason == (
        "a whole round brought nothing faster; best c2: 1.50× over torch (95% 1.48–1.52)"
    )


def test_a_stage_begins_with_what_the_one_before_leaves() -> None:
    log = run(talker(turn(finish("It is bound by memory.")), DONE, turn(write("1.2"), bench(1))))
    research, write_stage = briefs(log)[:2]
    assert "It is bound by memory." not in research.decoded.text
    assert "## From scripted, at the end of research\n\nIt is bound by memory." in (
        write_stage.decoded.text
    )


def test_a_brief_says_how_much_of_the_budget_is_for_its_stage() -> None:
    log = run(talker(DONE, DONE))
    research, write_stage = briefs(log)[:2]
    assert "Your share of the run's budget: 12 turns." in research.decoded.text
    assert "Your share of the run's budget: 8 evaluations and 40 turns." in (
        write_stage.decoded.text
    )


class Forgetful(ScriptedConversant):
    """Its context is full before its third turn."""

    def reply(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        if loop.state.turns.get(self.name) == 2 and loop.conversation.entries:
            raise ContextFull("full")
        return super().reply(loop, tools)

    def hand_over(self, loop: Loop, tools: tuple[Tool, ...]) -> Turn:
        return Turn("I was about to widen the loads.")


def test_a_full_context_goes_on_in_a_fresh_one_with_what_is_left_of_the_share() -> None:
    log = run(Forgetful((DONE, turn(write("1.2"), bench(1)), DONE, DONE, DONE)))
    assert stages(log)[:4] == ["research", "write", "write", "profile"]
    again = briefs(log)[2].decoded
    assert again.ordinal == 2
    assert "Your share of the run's budget: 7 evaluations and 39 turns." in again.text
    assert "## From your earlier context\n\nI was about to widen the loads." in again.text
    state = RunState.from_events(log.history())
    assert [opening.ordinal for opening in state.stages[:3]] == [1, 2, 3]


def test_research_neither_writes_nor_measures() -> None:
    log = run(talker(turn(write("1.2")), turn(bench(1)), DONE))
    assert [error["field"] for error in errors(log)[:2]] == ["tool", "tool"]
    assert RunState.from_events(log.history()).candidates == {}


@pytest.mark.parametrize("stage", STAGES, ids=lambda stage: stage.name)
def test_each_stage_names_tools_that_exist_and_has_a_brief_of_its_own(stage: Stage) -> None:
    assert set(stage.tools) <= set(tools.names())
    assert FINISH in stage.tools
    assert (BENCHMARK in stage.tools) is (stage.name == "write")
    assert "$" in prompts.text(stage.prompt)


def test_all_tools_there_are_serve_some_stage() -> None:
    assert {name for stage in STAGES for name in stage.tools} == set(tools.names())


def test_a_stage_ends_with_its_share_of_turns_and_its_agent_is_told() -> None:
    share = pipeline.RESEARCH.turns
    assert share is not None
    log = run(talker(*[turn(("list_zoo", {}))] * (share + 1)))
    kinds = [e.decoded.kind for e in log.events if e.type is EventType.message]
    second = kinds.index(MessageKind.brief, 2)
    assert kinds[1:second].count(MessageKind.said) == share
    assert kinds[second - 2] is MessageKind.nudge, "before the last turn"


def test_a_stage_ends_with_its_share_of_evaluations_after_one_turn_more() -> None:
    share = pipeline.ROUND[0].evaluations
    assert share is not None
    writes = [turn(write("1.2", str(n)), bench(n)) for n in range(1, share + 2)]
    log = run(talker(DONE, *writes, turn(text="unheard"), DONE))
    assert stages(log)[:3] == ["research", "write", "profile"]
    state = RunState.from_events(log.history())
    assert state.stages[2].evaluations == share
    assert "the share of this part of the run is used" in errors(log)[0]["problem"]
    assert len(state.candidates) == share + 1, "the last turn could still write"


def test_an_agent_that_proposes_needs_no_stages() -> None:
    log = run(ScriptedAgent(("// 1.2\n", "// 1.5\n")))
    assert briefs(log) == []
    assert log.events[-1].decoded.reason.startswith("nothing left to try after 2 candidates")


def test_the_search_agent_uses_the_whole_budget() -> None:
    log = make_log()
    spec = RunSpec("softmax", workflow="pipeline", budgets=Budgets(evaluations=8))
    drive(spec, log, FakeEvaluator(by_constants), Requests())
    assert RunState.from_events(log.history()).evaluations_used == 8
