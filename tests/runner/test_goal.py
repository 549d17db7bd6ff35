"""The goal workflow: when a target counts as reached, and what ends a run without it."""

from __future__ import annotations

from runner.agents.scripted import ScriptedAgent
from runner.conversation import Turn
from runner.drive import drive
from runner.events import EventType, MessageKind, RunStatus
from runner.log import MemoryLog
from runner.spec import Budgets, RunSpec
from runner.state import RunState
from tests.runner.fakes import (
    FakeEvaluator,
    Requests,
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


def run(goal: float | None, *lines: str) -> MemoryLog:
    log = make_log()
    spec = RunSpec("softmax", goal_speedup=goal, budgets=Budgets(evaluations=10))
    agent = ScriptedAgent(tuple(f"// {line}\n" for line in lines))
    drive(spec, log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    return log


def test_a_reached_goal_ends_the_run_and_names_its_candidate() -> None:
    log = run(1.5, "1.2", "1.62", "9")
    end = log.events[-1].decoded
    assert end.status is RunStatus.finished
    assert end.reason == "goal of 1.5× reached by c2: 1.62× over torch (95% 1.60–1.64)"
    assert len(RunState.from_events(log.history()).candidates) == 2


def test_a_median_over_the_goal_is_not_enough_while_its_interval_reaches_under_it() -> None:
    log = run(1.5, "1.50", "1.51")
    reason = log.events[-1].decoded.reason
    assert reason.startswith("nothing left to try after 2 candidates; best c2: 1.51×")


def test_without_a_goal_the_run_goes_on_to_its_budget() -> None:
    assert len(RunState.from_events(run(None, "1.2", "9", "1.3").history()).candidates) == 3


def test_an_exhausted_search_space_ends_the_run() -> None:
    log = make_log()
    spec = RunSpec("vector_add", language="triton", budgets=Budgets(evaluations=1000))
    drive(spec, log, FakeEvaluator(by_constants), Requests())
    state = RunState.from_events(log.history())
    constants = {tuple(sorted(c.constants.items())) for c in state.candidates.values()}
    assert len(constants) == len(state.candidates)
    assert state.reason.startswith(f"nothing left to try after {len(constants)} candidates")


def talk(goal: float | None, *turns: Turn) -> MemoryLog:
    log, evaluator = make_log(), FakeEvaluator(by_first_line)
    spec = RunSpec("softmax", goal_speedup=goal, budgets=Budgets(evaluations=10))
    drive(spec, log, evaluator, Requests(), create=only(talker(*turns)))
    return log


def contexts(log: MemoryLog) -> int:
    return sum(
        event.decoded.kind is MessageKind.brief
        for event in log.events
        if event.type is EventType.message
    )


def test_an_agent_that_finishes_short_of_the_goal_is_asked_again_in_a_fresh_context() -> None:
    measured, done = turn(write("1.2"), bench(1)), turn(finish("1.2× so far."))
    better = turn(write("1.9", parent=1), bench(2))
    log = talk(1.5, measured, done, better)
    assert contexts(log) == 2
    assert log.events[-1].decoded.reason.startswith("goal of 1.5× reached by c2")


def test_an_agent_that_measured_nothing_since_is_not_asked_again() -> None:
    done = turn(finish("Nothing more comes to mind."))
    log = talk(1.5, turn(write("1.2"), bench(1)), done, done, done)
    assert contexts(log) == 2
    assert log.events[-1].decoded.reason.startswith("the agent finished after 1 candidate; best c1")


def test_without_a_goal_an_agent_that_finishes_is_taken_at_its_word() -> None:
    assert contexts(talk(None, turn(write("1.2"), bench(1)), turn(finish()))) == 1
