"""The loop as whole event sequences: order, budgets, requests, defects and resumption."""

from __future__ import annotations

from typing import Any

import pytest

from runner.agents.scripted import ScriptedAgent
from runner.drive import drive
from runner.events import Event, EventType, RunStatus
from runner.log import MemoryLog
from runner.loop import EvaluationCancelled, Interrupted
from runner.results import Evaluation, Verdict
from runner.spec import Budgets, EvaluationSpec, RunSpec, SpecError
from runner.state import RunState
from tests.runner.fakes import (
    ROOFS,
    FakeEvaluator,
    Requests,
    Seconds,
    by_constants,
    by_first_line,
    make_evaluation,
    make_log,
    only,
    stop_by,
)

SPEC = RunSpec("softmax", budgets=Budgets(evaluations=10, wall_clock_s=3600))


def script(*lines: str) -> ScriptedAgent:
    return ScriptedAgent(tuple(f"// {line}\n" for line in lines))


def shape(log: MemoryLog) -> list[str]:
    return [event.type.value for event in log.events]


def last_reason(log: MemoryLog) -> str:
    payload = log.events[-1].decoded
    return f"{payload.status}: {payload.reason}"


STEP = ["message", "candidate", "tool_call", "evaluation", "budget"]


def test_a_whole_run_is_logged_step_by_step() -> None:
    log, evaluator = make_log(), FakeEvaluator(by_first_line)
    agent = script("1.2", "crashed", "1.5")
    status = drive(SPEC, log, evaluator, Requests(), clock=Seconds(), create=only(agent))
    assert status is RunStatus.finished
    assert shape(log) == ["run", *STEP, *STEP, *STEP, "message", "run"]
    assert log.events[0].decoded.spec == SPEC
    assert last_reason(log) == (
        "finished: nothing left to try after 3 candidates; "
        "best c3: 1.50× over torch (95% 1.48–1.52)"
    )
    state = RunState.from_events(log.history())
    assert state.best == 3
    assert [candidate.parent for candidate in state.candidates.values()] == [None, 1, 1]
    assert state.evaluations[2].verdict is Verdict.crashed


def test_the_evaluator_gets_the_source_that_the_log_holds() -> None:
    log, evaluator = make_log(), FakeEvaluator(by_first_line)
    drive(SPEC, log, evaluator, Requests(), create=only(script("1.2")))
    ref = log.events[2].artifacts[0]
    assert (ref.name, log.read(ref.sha256)) == ("c1.cpp", b"// 1.2\n")
    assert evaluator.specs == [EvaluationSpec("softmax", "// 1.2\n", "cpp", "host", "host")]


def test_an_evaluation_budget_ends_the_run_with_its_best() -> None:
    log = make_log()
    spec = RunSpec("softmax", budgets=Budgets(evaluations=2))
    drive(
        spec, log, FakeEvaluator(by_first_line), Requests(), create=only(script("1.2", "1.1", "9"))
    )
    assert shape(log) == ["run", *STEP, *STEP, "message", "run"]
    assert last_reason(log) == (
        "finished: evaluation budget of 2 used; best c1: 1.20× over torch (95% 1.19–1.21)"
    )


def test_a_run_without_a_passing_candidate_says_so() -> None:
    log = make_log()
    drive(SPEC, log, FakeEvaluator(by_first_line), Requests(), create=only(script("crashed")))
    assert last_reason(log).endswith("no candidate passed with a measured speedup")


def test_the_wall_clock_ends_a_run_between_proposing_and_evaluating() -> None:
    log, evaluator = make_log(), FakeEvaluator(by_first_line)
    spec = RunSpec("softmax", budgets=Budgets(evaluations=10, wall_clock_s=2))
    drive(spec, log, evaluator, Requests(), clock=Seconds(), create=only(script("1.2", "1.3")))
    assert shape(log) == ["run", "message", "candidate", "message", "run"]
    assert evaluator.asked == []
    assert last_reason(log) == (
        "finished: wall clock of 2 s used after 0 evaluations; "
        "no candidate passed with a measured speedup"
    )


def test_wall_clock_used_before_an_interruption_counts_after_it() -> None:
    log = make_log()
    spec = RunSpec("softmax", budgets=Budgets(evaluations=10, wall_clock_s=100))
    agent = script("1.2", "1.3", "1.4", "1.5", "1.6")
    control = Requests(None, None, None, None, Interrupted)
    with pytest.raises(Interrupted):
        drive(
            spec, log, FakeEvaluator(by_first_line), control, clock=Seconds(10), create=only(agent)
        )
    drive(
        spec, log, FakeEvaluator(by_first_line), Requests(), clock=Seconds(10), create=only(agent)
    )
    budgets = [e.decoded.wall_clock_s for e in log.events if e.type is EventType.budget]
    assert budgets == [30.0, 60.0, 90.0]
    ended = "finished: wall clock of 1 min 40 s used after 3 evaluations"
    assert last_reason(log).startswith(ended)


def test_a_stop_request_is_logged_and_ends_the_run_by_name() -> None:
    log, evaluator = make_log(), FakeEvaluator(by_first_line)
    control = Requests(None, None, stop_by("alice"))
    status = drive(SPEC, log, evaluator, control, create=only(script("1.2", "1.3")))
    assert status is RunStatus.stopped
    assert shape(log) == ["run", *STEP, "control", "message", "run"]
    assert last_reason(log) == "stopped: stopped by alice"


def test_a_stop_request_during_an_evaluation_leaves_its_candidate_unevaluated() -> None:
    class Cancelling(FakeEvaluator):
        def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
            raise EvaluationCancelled

    log = make_log()
    control = Requests(None, None, stop_by("alice"))
    assert (
        drive(SPEC, log, Cancelling(by_first_line), control, create=only(script("1.2")))
        is RunStatus.stopped
    )
    assert shape(log) == ["run", "message", "candidate", "tool_call", "control", "message", "run"]


def test_a_stop_request_of_an_interrupted_run_still_holds_after_the_resumption() -> None:
    log = make_log()
    drive(
        SPEC,
        log,
        FakeEvaluator(by_first_line),
        Requests(stop_by("alice")),
        create=only(script("1.2")),
    )
    cut = make_log(log.events[:2], log)
    assert shape(cut) == ["run", "control"]
    again = Requests(stop_by("alice"))
    status = drive(SPEC, cut, FakeEvaluator(by_first_line), again, create=only(script("1.2")))
    assert status is RunStatus.stopped
    assert shape(cut) == ["run", "control", "run", "message", "run"]


def test_the_first_event_that_can_keeps_the_roofs_of_the_device_and_no_other_does() -> None:
    log = make_log()
    drive(SPEC, log, FakeEvaluator(by_first_line), Requests(), create=only(script("1.2")))
    kept = [event.decoded.ceilings for event in log.events if event.type == "run"]
    assert kept == [ROOFS, ()]
    assert RunState.from_events(log.events).ceilings == ROOFS


def test_a_noisy_candidate_does_not_outrank_a_sure_one() -> None:
    sure, noisy = make_evaluation(1.5), make_evaluation(1.85, spread=0.5)
    assert sure.better_than(noisy)
    assert not noisy.better_than(sure)


def test_a_shutdown_leaves_the_log_resumable() -> None:
    log = make_log()
    control = Requests(None, Interrupted)
    with pytest.raises(Interrupted):
        drive(SPEC, log, FakeEvaluator(by_first_line), control, create=only(script("1.2")))
    assert shape(log) == ["run", "message", "candidate"]


def test_a_defect_of_ours_is_logged_ends_the_run_and_is_raised_again() -> None:
    log = make_log()
    with pytest.raises(RuntimeError, match="lost its pipe"):
        drive(
            SPEC,
            log,
            FakeEvaluator(by_first_line),
            Requests(),
            create=only(script("1.2", "defect")),
        )
    assert shape(log)[-3:] == ["tool_call", "harness_error", "run"]
    error = log.events[-2].decoded
    assert error.where == "evaluating c2"
    assert error.error == "RuntimeError: the referee lost its pipe"
    assert "by_first_line" in error.traceback
    assert last_reason(log).startswith("failed: a defect of the harness ended the run")


def test_a_harness_that_keeps_failing_ends_the_run() -> None:
    log = make_log()
    agent = script("1.2", *["harness_error"] * 9)
    status = drive(SPEC, log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    assert status is RunStatus.failed
    assert last_reason(log) == (
        "failed: 3 evaluations in a row ended in a harness error: it harness_error"
    )


def test_a_request_that_cannot_be_met_fails_the_run_with_its_remedy() -> None:
    class NoCompiler(FakeEvaluator):
        def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
            raise SpecError("language", "g++ is not installed.", "Install it.")

    log = make_log()
    assert (
        drive(SPEC, log, NoCompiler(by_first_line), Requests(), create=only(script("1.2")))
        is RunStatus.failed
    )
    assert last_reason(log) == "failed: language: g++ is not installed. Install it."
    unknown = make_log()
    spec = RunSpec("sofmax")
    assert drive(spec, unknown, NoCompiler(by_first_line), Requests()) is RunStatus.failed
    assert "no problem is called 'sofmax'" in last_reason(unknown)


def test_long_output_of_a_candidate_becomes_an_artifact_and_keeps_its_tail() -> None:
    output = "".join(f"line {number}\n" for number in range(2000))
    log = make_log()
    evaluator = FakeEvaluator(lambda source: make_evaluation(1.2, output=output))
    drive(SPEC, log, evaluator, Requests(), create=only(script("1.2")))
    event = next(event for event in log.events if event.type is EventType.evaluation)
    assert [ref.name for ref in event.artifacts] == ["output.txt"]
    assert log.read(event.artifacts[0].sha256).decode() == output
    kept = event.decoded.evaluation.output
    assert output.endswith(kept)
    assert len(kept) == 4000


def test_an_ended_run_is_left_as_it_is() -> None:
    log = make_log()
    drive(SPEC, log, FakeEvaluator(by_first_line), Requests(), create=only(script("1.2")))
    before = list(log.events)
    assert drive(SPEC, log, FakeEvaluator(by_first_line), Requests()) is RunStatus.finished
    assert log.events == before


def facts(events: list[Event]) -> list[tuple[str, Any]]:
    """What a log says, resumptions and times aside."""
    told = []
    for event in events:
        payload = dict(event.payload)
        payload.pop("wall_clock_s", None)
        if not payload.get("reason", "").startswith("resumed after"):
            told.append((event.type.value, payload))
    return told


@pytest.mark.parametrize("agent", ["scripted", "search"])
def test_a_run_cut_after_any_event_continues_as_if_undisturbed(agent: str) -> None:
    scripted = script("1.2", "crashed", "1.5", "1.4") if agent == "scripted" else None
    judge = by_first_line if scripted else by_constants
    spec = RunSpec("softmax", seed=3, budgets=Budgets(evaluations=7, wall_clock_s=1e5))
    whole = make_log()
    drive(spec, whole, FakeEvaluator(judge), Requests(), clock=Seconds(), create=only(scripted))
    for cut in range(len(whole.events)):
        log = make_log(whole.events[:cut], whole)
        evaluated = set(RunState.from_events(log.history()).evaluations)
        evaluator = FakeEvaluator(judge)
        status = drive(spec, log, evaluator, Requests(), clock=Seconds(), create=only(scripted))
        assert status is RunStatus.finished
        assert facts(log.events) == facts(whole.events), f"cut after event {cut}"
        assert evaluated.isdisjoint(evaluator.asked), "nothing is evaluated twice"


def test_a_run_cut_again_and_again_still_ends_the_same() -> None:
    agent = script("1.2", "crashed", "1.5")
    whole = make_log()
    drive(SPEC, whole, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    log = make_log()
    for polls in (0, 1, 1, 2, 1):
        control = Requests(*[None] * polls, Interrupted)
        with pytest.raises(Interrupted):
            drive(SPEC, log, FakeEvaluator(by_first_line), control, create=only(agent))
    drive(SPEC, log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    assert facts(log.events) == facts(whole.events)
