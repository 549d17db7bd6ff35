from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from django.db import connection
from django.utils import timezone

from runner.events import ControlAction, EventType
from runner.results import Evaluation
from runner.spec import Budgets, EvaluationSpec, RunSpec, SpecError
from tests.factories import make_run, make_user
from tests.webapp.fakes import DeviceThread, hangs_until_cancelled, passes, register
from webapp.fleet.models import LIVE_FOR, Device
from webapp.runs import driver
from webapp.runs.models import Event, Job, Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


def launch(evaluations: int = 2) -> Run:
    spec = RunSpec("softmax", budgets=Budgets(evaluations=evaluations))
    return Run.objects.launch(spec, make_user())


def drive(
    run: Run, shutdown: threading.Event | None = None, away_s: float = driver.AWAY_S
) -> None:
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
