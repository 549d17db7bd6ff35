from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runner.events import ControlAction, RunPayload, RunStatus
from runner.spec import EvaluationSpec
from runner.wire import canonical, to_json
from tests.factories import make_event, make_run
from tests.webapp.fakes import register
from webapp.celery import AGENTS_QUEUE, app, device_queue
from webapp.fleet.models import LIVE_FOR, Device
from webapp.runs.models import Event, Job, Run
from webapp.runs.reconciler import ABANDONED, NO_AGENTS, reconcile

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

WAITING = "waiting: no worker serves device host"


@pytest.fixture(autouse=True)
def _empty_queues(valkey: str) -> None:
    with app.connection_for_write() as connection:
        for queue in (AGENTS_QUEUE, device_queue("host")):
            connection.default_channel.client.delete(queue)


def waiting_messages(queue: str = AGENTS_QUEUE) -> int:
    with app.connection_for_write() as connection:
        return int(connection.default_channel.client.llen(queue))


def dead() -> dict[str, object]:
    return {"lease_until": timezone.now() - timedelta(seconds=1), "lease_token": 3}


def reason(run: Run) -> str:
    run.refresh_from_db()
    return run.reason


def test_a_run_whose_driver_died_is_queued_with_the_reason_and_hinted_at() -> None:
    register()
    run = make_run("running")
    Run.objects.filter(pk=run.pk).update(**dead())

    reconcile()

    run.refresh_from_db()
    assert (run.status, run.reason) == ("queued", ABANDONED)
    assert waiting_messages() == 1


def test_a_run_whose_driver_lives_is_left_alone() -> None:
    register()
    run = make_run("running")
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() + timedelta(seconds=5))

    reconcile()

    run.refresh_from_db()
    assert run.status == "running"
    assert waiting_messages() == 0


def test_an_imported_run_that_never_ended_is_left_alone() -> None:
    register()
    run = make_run("running")
    Run.objects.filter(pk=run.pk).update(imported=True, **dead())

    reconcile()

    run.refresh_from_db()
    assert run.status == "running"


def test_a_queued_run_is_hinted_at_again_but_not_on_every_pass() -> None:
    register()
    run = make_run("queued")

    for _ in range(5):
        reconcile()
    assert waiting_messages() == 1

    Run.objects.update(enqueued_at=timezone.now() - timedelta(minutes=5))
    reconcile()
    assert waiting_messages() == 2
    run.refresh_from_db()
    assert run.hints_sent == 2


def test_a_queued_run_says_that_no_worker_serves_its_device_until_one_is_back() -> None:
    run = make_run("queued")

    reconcile()
    assert reason(run) == WAITING
    assert waiting_messages() == 0

    register()
    reconcile()
    assert reason(run) == ""
    assert waiting_messages() == 1

    Device.objects.update(last_seen=timezone.now() - LIVE_FOR)
    reconcile()
    assert reason(run) == WAITING


def test_a_queued_run_says_that_nobody_drives_agents() -> None:
    register(agents=False)
    run = make_run("queued")

    reconcile()
    assert reason(run) == NO_AGENTS

    register()
    reconcile()
    assert reason(run) == ""


def test_a_stop_request_for_a_run_that_nobody_drives_ends_it() -> None:
    run = make_run("queued")
    resumed = make_run("running", candidates=1)
    Run.objects.filter(pk=resumed.pk).update(**dead())
    for each in (run, resumed):
        each.ask(ControlAction.stop, "ada")

    reconcile()

    for each in (run, resumed):
        assert reason(each) == "stopped by ada"
        assert each.status == "stopped"
        assert each.lease_until is None
    assert list(Event.objects.filter(run=run).values_list("type", flat=True)) == [
        "run",
        "control",
        "run",
    ]
    first = Event.objects.get(run=run, seq=1).log.decoded
    assert first.spec == run.spec


def test_a_stop_request_for_a_paused_run_ends_it_with_all_that_was_asked_before() -> None:
    run = make_run("running", candidates=1, agent="claude")
    run.ask(ControlAction.pause, "ada")
    make_event(run, run.requests.get().payload)
    make_event(run, RunPayload(RunStatus.paused, "paused by ada"))
    run.ask(ControlAction.steer, "grace", "wider")
    run.ask(ControlAction.stop, "grace")

    reconcile()
    reconcile()

    assert reason(run) == "stopped by grace"
    assert (run.status, run.lease_until) == ("stopped", None)
    tail = [event.log.decoded for event in run.events.all()][-4:]
    assert [getattr(each, "action", each) for each in tail[1:3]] == ["steer", "stop"]
    assert (tail[0].status, tail[3].status) == ("paused", "stopped")


def test_a_stop_that_a_dead_driver_had_taken_up_still_ends_the_run() -> None:
    run = make_run("running")
    run.ask(ControlAction.stop, "ada")
    make_event(run, run.requests.get().payload)
    Run.objects.filter(pk=run.pk).update(**dead())

    reconcile()

    assert reason(run) == "stopped by ada"
    assert run.events.filter(type="control").count() == 1


def test_a_paused_run_is_left_alone_until_somebody_resumes_it() -> None:
    register()
    run = make_run("running")
    run.ask(ControlAction.pause, "ada")
    make_event(run, run.requests.get().payload)
    make_event(run, RunPayload(RunStatus.paused, "paused by ada"))

    reconcile()
    run.refresh_from_db()
    assert (run.status, run.reason, waiting_messages()) == ("paused", "paused by ada", 0)

    # asked while the driver still held it, so that the one who asked could not put it back
    held = Run.objects.filter(pk=run.pk)
    held.update(lease_until=timezone.now() + timedelta(seconds=9))
    run.ask(ControlAction.resume, "ada")
    assert reason(run) == "paused by ada"
    held.update(lease_until=None)
    reconcile()
    run.refresh_from_db()
    assert (run.status, waiting_messages()) == ("queued", 1)


def test_a_run_whose_agent_no_worker_can_run_says_so_and_is_not_hinted_at() -> None:
    register(lacking={"claude": "ANTHROPIC_API_KEY is not set"})
    run = make_run("queued", agent="claude")

    reconcile()
    words = "waiting: no worker can run the claude agent (ANTHROPIC_API_KEY is not set)"
    assert reason(run) == words
    assert waiting_messages() == 0

    register()
    reconcile()
    assert reason(run) == ""
    assert waiting_messages() == 1


def test_a_job_whose_worker_died_is_hinted_at_again() -> None:
    register()
    job = make_job(make_run("running"), **dead())

    reconcile()

    assert waiting_messages(device_queue("host")) == 1
    job.refresh_from_db()
    assert job.hints_sent == 1


def test_jobs_of_a_run_that_is_over_are_ended() -> None:
    run = make_run("stopped")
    job = make_job(run)

    reconcile()

    job.refresh_from_db()
    assert job.cancelled
    assert job.finished_at is not None


def test_a_pass_over_many_quiet_runs_costs_as_much_as_over_one(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    register()
    for _ in range(10):
        make_run("finished")
        running = make_run("running")
        Run.objects.filter(pk=running.pk).update(lease_until=timezone.now() + timedelta(seconds=9))

    with django_assert_max_num_queries(12):
        reconcile()


def make_job(run: Run, **columns: object) -> Job:
    text = canonical(to_json(EvaluationSpec("softmax", "// source", "cpp")))
    return Job.objects.create(run=run, number=1, device="host", spec_text=text, **columns)
