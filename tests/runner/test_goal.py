"""The goal workflow: when a target counts as reached, and what ends a run without it."""

from __future__ import annotations

from runner import workflows
from runner.agents.scripted import ScriptedAgent
from runner.drive import drive
from runner.events import RunStatus
from runner.log import MemoryLog
from runner.spec import Budgets, RunSpec
from runner.state import RunState
from tests.runner.fakes import FakeEvaluator, Requests, by_constants, by_first_line, make_log, only


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


def test_the_workflow_is_found_by_its_module_name() -> None:
    assert "goal" in workflows.names()
