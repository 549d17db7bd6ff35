"""The flame chase: two agents in turn over one frontier, and when neither has more to give."""

from __future__ import annotations

from collections.abc import Callable

from runner.agents import Agent
from runner.agents.scripted import ScriptedAgent
from runner.drive import drive
from runner.events import EventType, MessageKind
from runner.log import MemoryLog
from runner.results import Evaluation
from runner.spec import AgentSpec, Budgets, RunSpec
from runner.state import RunState
from runner.workflows import flame_chase
from tests.runner.fakes import (
    FakeEvaluator,
    Requests,
    Seconds,
    bench,
    by_constants,
    by_first_line,
    finish,
    in_order,
    make_log,
    talker,
    turn,
    write,
)

SPEC = RunSpec(
    "softmax",
    workflow="flame_chase",
    partner=AgentSpec("search"),
    budgets=Budgets(evaluations=50, wall_clock_s=1e5),
)


def chase(
    first: Agent, second: Agent, judge: Callable[[str], Evaluation] = by_first_line
) -> MemoryLog:
    log, create = make_log(), in_order(first, second)
    drive(SPEC, log, FakeEvaluator(judge), Requests(), clock=Seconds(), create=create)
    return log


def authors(log: MemoryLog) -> list[str]:
    return [c.author for c in RunState.from_events(log.history()).candidates.values()]


def briefs(log: MemoryLog) -> list[str]:
    messages = (event.decoded for event in log.events if event.type is EventType.message)
    return [each.text for each in messages if each.kind is MessageKind.brief]


def test_two_agents_alternate_in_fresh_contexts_until_neither_finds_anything_faster() -> None:
    ada = talker(
        turn(write("1.2", "Ada's."), bench(1)),
        turn(finish("Rows fit the cache.")),
        turn(write("1.1", "Slower."), bench(3)),
        turn(finish("Nothing more.")),
        name="ada",
    )
    bob = talker(
        turn(write("1.5", "Bob's.", parent=1), bench(2)),
        turn(finish("Vectorised.")),
        turn(write("1.3", "Slower too."), bench(4)),
        turn(finish("Nothing more.")),
        name="bob",
    )
    log = chase(ada, bob)
    assert authors(log) == ["ada", "bob", "ada", "bob"]
    legs = RunState.from_events(log.history()).stages
    assert [(leg.ordinal, leg.agent, leg.best) for leg in legs] == [
        (1, "ada", None),
        (2, "bob", 1),
        (3, "ada", 2),
        (4, "bob", 2),
    ]
    assert log.events[-1].decoded.reason == (
        "neither agent found anything more; best c2: 1.50× over torch (95% 1.48–1.52)"
    )


def test_the_second_begins_from_what_the_first_measured_noted_and_says() -> None:
    note = ("write_note", {"text": "Blocks of 64 are best."})
    ada = talker(turn(write("1.2"), bench(1), note), turn(finish("Try wider blocks.")), name="ada")
    log = chase(ada, talker(turn(finish()), turn(finish()), name="bob"))
    handed = briefs(log)[1]
    assert "c1: 1.20× over torch" in handed
    assert "- ada: Blocks of 64 are best." in handed
    assert "## From ada, at the end of leg\n\nTry wider blocks." in handed


def test_a_leg_ends_with_its_share_of_evaluations() -> None:
    share = flame_chase.LEG.evaluations
    assert share is not None
    greedy = [turn(write("1.2", str(n)), bench(n)) for n in range(1, share + 1)]
    log = chase(talker(*greedy, turn(finish()), name="ada"), talker(name="bob"))
    legs = RunState.from_events(log.history()).stages
    assert [(leg.agent, leg.evaluations) for leg in legs] == [("ada", 0), ("bob", share)]


def test_agents_that_propose_alternate_by_candidate_until_both_have_nothing_left() -> None:
    ada = ScriptedAgent(("// 1.2\n", "// 1.1\n", "// 1.0\n", "// 0.9\n"), name="ada")
    bob = ScriptedAgent(("// 1.3\n",), name="bob")
    log = chase(ada, bob)
    assert authors(log) == ["ada", "bob", "ada", "ada", "ada"]
    assert log.events[-1].decoded.reason.startswith("neither agent found anything more; best c2")


def test_a_proposing_and_a_talking_agent_take_turns() -> None:
    ada = ScriptedAgent(("// 1.2\n", "// 1.1\n"), name="ada")
    scratch = write("9", "Scratch, never measured.")
    bob = talker(
        turn(write("1.3"), scratch, bench(2)), turn(finish()), turn(finish()), turn(finish()),
        name="bob",
    )  # fmt: skip
    log = chase(ada, bob)
    assert authors(log) == ["ada", "bob", "bob", "ada"]
    state = RunState.from_events(log.history())
    assert list(state.evaluations) == [1, 2, 4], "nobody measures the other's scratch"


def test_the_closing_words_are_those_of_an_agent_that_talks() -> None:
    bob = talker(turn(finish()), turn(finish()), closing="So much for that.", name="bob")
    log = chase(bob, ScriptedAgent((), name="ada"))
    closing = [e.decoded for e in log.events if e.type is EventType.message][-1]
    assert closing.author == "bob"
    assert closing.text.startswith("So much for that.\n\nMeasured by the harness: ")


def test_two_search_agents_together_search_on() -> None:
    log = make_log()
    spec = RunSpec(**{**vars(SPEC), "budgets": Budgets(evaluations=9)})
    drive(spec, log, FakeEvaluator(by_constants), Requests())
    state = RunState.from_events(log.history())
    assert len({tuple(c.constants.items()) for c in state.candidates.values()}) == 9
    assert len(state.stages) == 9
