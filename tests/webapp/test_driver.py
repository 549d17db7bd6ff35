from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from runner.analysis.analyze import AnalysisSpec, Report
from runner.analysis.findings import Analysis, AnalysisVerdict
from runner.analysis.simulate import SimulationSpec
from runner.events import ControlAction, EventType, RunPayload, RunStatus
from runner.results import Evaluation
from runner.spec import Budgets, EvaluationSpec, RunSpec, SpecError
from runner.state import RunState, moment
from tests.factories import make_run, make_user
from tests.webapp.fakes import DeviceThread, Judge, hangs_until_cancelled, passes, register
from webapp.fleet.models import LIVE_FOR, Device
from webapp.runs import driver
from webapp.runs.leases import Lease
from webapp.runs.log import DatabaseLog
from webapp.runs.models import Event, Job, Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


def launch(evaluations: int = 2) -> Run:
    spec = RunSpec("softmax", budgets=Budgets(evaluations=evaluations))
    return Run.objects.launch(spec, make_user())


def drive(run: Run, shutdown: threading.Event | None = None, away_s: float = driver.AWAY_S) -> None:
    """Without analyses, which would start compilers."""
    shutdown = shutdown or threading.Event()
    driver.drive_run(run.pk, shutdown, "a driver", away_s=away_s, examiner=None)


def in_thread(
    run: Run, shutdown: threading.Event | None = None, away_s: float = driver.AWAY_S
) -> threading.Thread:
    def work() -> None:
        drive(run, shutdown, away_s)
        connection.close()

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


def state(run: Run) -> RunState:
    return RunState.from_events(event.log for event in run.events.all())


def types(run: Run) -> list[str]:
    return list(Event.objects.filter(run=run).values_list("type", flat=True))


def assert_dense_and_each_evaluated_once(run: Run) -> None:
    run.refresh_from_db()
    seqs = list(Event.objects.filter(run=run).values_list("seq", flat=True))
    assert seqs == list(range(1, run.last_seq + 1))
    assert types(run).count("candidate") == types(run).count("evaluation") == run.evaluations


def test_a_run_goes_from_launch_to_its_end() -> None:
    run = launch(2)

    with DeviceThread() as device:
        drive(run)

    run.refresh_from_db()
    assert (run.status, run.evaluations, len(device.judged)) == ("finished", 2, 2)
    assert (run.lease_until, run.lease_holder) == (None, "")
    step = ["message", "candidate", "tool_call", "evaluation", "budget"]
    assert types(run) == ["run", *step, *step, "message", "run"]
    assert_dense_and_each_evaluated_once(run)


def test_a_second_delivery_of_the_same_hint_does_nothing() -> None:
    run = launch(3)

    with DeviceThread():
        drivers = [in_thread(run) for _ in range(3)]
        for thread in drivers:
            thread.join()
        drive(run)

    assert_dense_and_each_evaluated_once(run)
    assert (run.status, run.evaluations, run.lease_token) == ("finished", 3, 1)


def test_at_shutdown_the_run_is_handed_back_and_the_next_driver_adopts_the_evaluation() -> None:
    run = launch(1)
    shutdown, finish = threading.Event(), threading.Event()

    def slow(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        assert finish.wait(20)
        return passes(spec, cancel)

    with DeviceThread(slow) as device:
        thread = in_thread(run, shutdown)
        eventually(lambda: bool(device.judged))
        shutdown.set()
        thread.join(5)
        assert not thread.is_alive()
        run.refresh_from_db()
        assert (run.status, run.reason) == ("queued", driver.SHUT_DOWN)
        in_thread(run, shutdown).join()  # a worker that shuts down takes nothing up
        assert types(run).count("run") == 1

        again = in_thread(run)
        finish.set()
        again.join()

    assert_dense_and_each_evaluated_once(run)
    assert (run.status, len(device.judged)) == ("finished", 1)


def test_a_stop_request_ends_a_hanging_evaluation_and_the_run() -> None:
    run = launch(5)

    with DeviceThread(hangs_until_cancelled) as device:
        thread = in_thread(run)
        eventually(lambda: bool(device.judged))
        run.ask(ControlAction.stop, "ada")
        thread.join(5)
        assert not thread.is_alive()
        eventually(lambda: not Job.objects.open().exists(), 2)

    run.refresh_from_db()
    assert (run.status, run.reason) == ("stopped", "stopped by ada")
    assert types(run)[-3:] == ["control", "message", "run"]
    with pytest.raises(SpecError, match="it is over"):
        run.ask(ControlAction.stop, "grace")


def asks(run: Run, action: ControlAction, **what: Any) -> Judge:
    """A judge during whose first evaluation a person asks for something."""

    def judge(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        if not run.requests.exists():
            run.ask(action, "ada", **what)
            assert not cancel.wait(1.0), "only a stop ends an evaluation under way"
        return passes(spec, cancel)

    return judge


def test_a_pause_waits_for_the_step_under_way_and_holds_no_worker() -> None:
    run = launch(2)

    with DeviceThread(asks(run, ControlAction.pause)):
        drive(run)

        run.refresh_from_db()
        assert (run.status, run.reason) == ("paused", "paused by ada")
        assert (run.lease_until, run.lease_holder, run.evaluations) == (None, "", 1)
        assert types(run)[-4:] == ["evaluation", "budget", "control", "run"]
        drive(run)
        assert types(run)[-1] == "run", "nobody drives a paused run"


def test_a_resumed_run_goes_on_and_its_pause_is_nobody_s_time() -> None:
    run = launch(2)

    with DeviceThread(asks(run, ControlAction.pause)):
        drive(run)
        used_s = state(run).wall_clock_s
        time.sleep(0.5)
        run.ask(ControlAction.resume, "grace")
        drive(run)

    run.refresh_from_db()
    assert run.status == "finished"
    assert_dense_and_each_evaluated_once(run)
    actions = [e.log.decoded.action for e in run.events.filter(type="control")]
    assert actions == ["pause", "resume"]
    pause = [e.log for e in run.events.filter(type="run")][1:3]
    gap_s = (moment(pause[1]) - moment(pause[0])).total_seconds()
    whole_s = (run.ended_at - run.started_at).total_seconds()
    assert gap_s >= 0.5
    assert used_s < state(run).wall_clock_s == pytest.approx(whole_s - gap_s, abs=0.01)


def test_a_resumption_asked_for_while_the_driver_lets_go_is_not_lost() -> None:
    run = make_run("running")
    run.ask(ControlAction.pause, "ada")
    token = Run.objects.take(run.pk, "a driver")
    assert token is not None
    log = DatabaseLog(run, token)
    log.emit(run.requests.get().payload)
    log.emit(RunPayload(RunStatus.paused, "paused by ada"))
    run.refresh_from_db()
    run.ask(ControlAction.resume, "grace")
    assert Run.objects.get().status == "paused", "its driver still holds it"

    driver.leave_paused(run.pk, Lease(Run.objects.all(), run.pk, token))

    run.refresh_from_db()
    assert (run.status, run.lease_until) == ("queued", None)


def test_a_request_takes_effect_once_whoever_drives() -> None:
    run = launch(1)
    shutdown = threading.Event()

    def judge(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        if not run.requests.exists():
            run.ask(ControlAction.extend, "ada", budgets=Budgets(evaluations=2))
            shutdown.set()
        return passes(spec, cancel)

    with DeviceThread(judge):
        drive(run, shutdown)
        assert "control" not in types(run)
        drive(run)
        drive(run)

    taken = [event.log.decoded for event in run.events.filter(type="control")]
    assert [(each.action, each.request) for each in taken] == [("extend", 1)]
    assert_dense_and_each_evaluated_once(run)


def test_an_extended_run_goes_on_to_its_new_limits() -> None:
    run = launch(1)

    with DeviceThread(asks(run, ControlAction.extend, budgets=Budgets(evaluations=3))):
        drive(run)

    assert_dense_and_each_evaluated_once(run)
    assert (run.status, run.evaluations) == ("finished", 3)


def test_each_scope_of_a_candidate_is_measured_once() -> None:
    run = make_run("running", candidates=1)
    control = driver.DatabaseControl(run.pk, threading.Event(), threading.Event())
    evaluator = driver.JobEvaluator(run, control, driver.AWAY_S)
    spec = EvaluationSpec("softmax", "// source", "cpp")

    with DeviceThread() as device:
        for scope in ("check", "case 512x2048-fp32", "check", ""):
            evaluator.evaluate(1, spec, scope)

    assert len(device.judged) == 3
    scopes = set(Job.objects.values_list("number", "scope"))
    assert scopes == {(1, ""), (1, "check"), (1, "case 512x2048-fp32")}


def test_a_worker_leaves_a_run_whose_agent_it_cannot_run_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    run = Run.objects.launch(RunSpec("softmax", agent="claude"), make_user())
    register()

    drive(run)

    run.refresh_from_db()
    assert (run.status, run.lease_token, run.enqueued_at) == ("queued", 0, None)


def test_what_the_analysis_says_of_a_candidate_is_logged_before_it_is_measured() -> None:
    class Examined:
        def analyze(self, spec: AnalysisSpec) -> Report:
            return Report(Analysis(AnalysisVerdict.clean, "", (), ()))

        def simulate(self, spec: SimulationSpec) -> Analysis:
            raise AssertionError("nobody asked for it")

    run = launch(1)
    with DeviceThread():
        driver.drive_run(run.pk, threading.Event(), "a driver", examiner=Examined())

    assert types(run)[2:6] == ["candidate", "analysis", "tool_call", "evaluation"]


def test_a_driver_that_lost_its_lease_lets_go_without_a_trace() -> None:
    run = launch(1)

    with DeviceThread(hangs_until_cancelled) as device:
        thread = in_thread(run)
        eventually(lambda: bool(device.judged))
        before = types(run)
        Run.objects.filter(pk=run.pk).update(lease_token=99, lease_holder="another")
        thread.join(10)
        assert not thread.is_alive()

    run.refresh_from_db()
    assert types(run) == before
    assert (run.status, run.lease_holder, run.lease_token) == ("running", "another", 99)


def test_a_run_whose_device_nobody_serves_is_not_begun() -> None:
    run = launch(1)

    drive(run)

    run.refresh_from_db()
    assert (run.status, run.last_seq, run.lease_token) == ("queued", 0, 0)


def test_a_run_whose_device_goes_away_is_given_back_with_the_reason() -> None:
    run = launch(1)
    register()
    thread = in_thread(run, away_s=0.5)
    eventually(lambda: Job.objects.exists())

    Device.objects.update(last_seen=timezone.now() - LIVE_FOR)
    thread.join(10)

    run.refresh_from_db()
    assert (run.status, run.reason) == ("queued", "waiting: no worker serves device host")


def test_a_device_that_cannot_meet_the_request_ends_the_run_with_field_and_remedy() -> None:
    def refuse(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        raise SpecError("language", "g++ is missing.", "Install g++.")

    run = launch(3)
    with DeviceThread(refuse):
        drive(run)

    run.refresh_from_db()
    assert (run.status, run.reason) == ("failed", "language: g++ is missing. Install g++.")


def test_a_defect_of_an_evaluation_is_the_harness_s_fault_and_never_the_kernel_s() -> None:
    def breaks(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        raise ZeroDivisionError("ours")

    run = launch(1)
    with DeviceThread(breaks):
        drive(run)

    candidate = run.candidates.get()
    assert (candidate.verdict, candidate.speedup) == ("harness_error", None)
    assert candidate.reason == "ZeroDivisionError: ours"


def test_a_run_that_takes_every_driver_down_ends_as_failed() -> None:
    run = launch(1)
    register()
    Run.objects.filter(pk=run.pk).update(fruitless_starts=driver.MAX_FRUITLESS_STARTS)

    with pytest.raises(RuntimeError, match="5 drivers in a row died"):
        drive(run)

    run.refresh_from_db()
    assert run.status == "failed"
    assert "5 drivers in a row died" in run.reason
    assert types(run) == ["run", "harness_error", "run"]


def test_an_imported_run_is_never_driven() -> None:
    run = make_run("running")
    Run.objects.filter(pk=run.pk).update(imported=True)
    register()

    drive(run)

    run.refresh_from_db()
    assert (run.lease_token, run.last_seq) == (0, 1)


def test_launching_refuses_what_the_catalog_cannot_meet() -> None:
    with pytest.raises(SpecError, match="problem"):
        Run.objects.launch(RunSpec("soft-max"), None)

    assert not Run.objects.exists()


def test_the_first_event_of_a_run_holds_its_spec() -> None:
    run = launch(1)
    with DeviceThread():
        drive(run)

    first = Event.objects.filter(run=run).first()
    assert first is not None
    assert first.kind is EventType.run
    assert first.log.decoded.spec == run.spec
