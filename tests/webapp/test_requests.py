"""What people may ask of a run, and what becomes of it without a driver in between."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.db import connection
from django.utils import timezone

from runner.events import ControlAction, RunPayload, RunStatus
from runner.spec import Budgets, SpecError
from tests.factories import make_event, make_run
from webapp.runs.models import Run, RunRequest

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

STOP, PAUSE, RESUME = ControlAction.stop, ControlAction.pause, ControlAction.resume
STEER, EXTEND = ControlAction.steer, ControlAction.extend


def make_paused() -> Run:
    """As a driver leaves it."""
    run = make_run("running")
    run.ask(PAUSE, "ada")
    make_event(run, run.requests.get().payload)
    make_event(run, RunPayload(RunStatus.paused, "paused by ada"))
    return run


def refused(run: Run, action: ControlAction, **what: object) -> SpecError:
    before = RunRequest.objects.count()
    with pytest.raises(SpecError) as caught:
        run.ask(action, "grace", **what)  # type: ignore[arg-type]
    assert RunRequest.objects.count() == before
    assert caught.value.remedy
    return caught.value


def test_requests_are_numbered_densely_within_their_run() -> None:
    one, other = make_run("running", agent="claude"), make_run("running", agent="claude")

    for run in (one, other):
        run.ask(STEER, "ada", "try wider vectors")
        run.ask(PAUSE, "ada")

    for run in (one, other):
        assert list(run.requests.values_list("number", "action")) == [(1, "steer"), (2, "pause")]


def test_two_people_who_ask_at_once_get_two_numbers() -> None:
    run = make_run("running", agent="claude")

    def ask(name: str) -> None:
        for index in range(10):
            Run.objects.get(pk=run.pk).ask(STEER, name, f"note {index}")
        connection.close()

    people = [threading.Thread(target=ask, args=(name,)) for name in ("ada", "grace")]
    for person in people:
        person.start()
    for person in people:
        person.join()

    numbers = list(run.requests.values_list("number", flat=True))
    assert numbers == list(range(1, 21))


def test_a_request_comes_back_as_it_was_made() -> None:
    run = make_run("running")
    wider = Budgets(evaluations=40, wall_clock_s=1200.0, tokens=500_000, dollars=2.5)

    run.ask(EXTEND, "ada", budgets=wider)

    payload = run.requests.get().payload
    assert (payload.action, payload.by, payload.request) == (EXTEND, "ada", 1)
    assert payload.budgets == wider


@pytest.mark.parametrize("status", ["finished", "stopped", "failed"])
def test_nothing_is_asked_of_a_run_that_is_over(status: str) -> None:
    run = make_run(status)

    assert refused(run, STOP).field == "run"


def test_nothing_is_asked_of_an_imported_run() -> None:
    run = make_run("running")
    Run.objects.filter(pk=run.pk).update(imported=True)

    assert "imported" in refused(run, STOP).problem


def test_after_a_stop_nothing_else_is_taken() -> None:
    run = make_run("running")
    run.ask(STOP, "ada")

    for action in (STOP, PAUSE):
        assert "ada asked it to stop" in refused(run, action).problem
    assert run.stop_requested_by == "ada"


def test_only_a_paused_run_is_resumed_and_only_another_is_paused() -> None:
    run = make_run("running")
    assert "not paused" in refused(run, RESUME).problem

    run.ask(PAUSE, "ada")
    assert "ada asked it to pause" in refused(run, PAUSE).problem

    run.ask(RESUME, "ada")
    assert "not paused" in refused(run, RESUME).problem


def test_an_agent_that_reads_no_notes_is_told_none() -> None:
    run = make_run("running", agent="search")

    assert "reads no notes" in refused(run, STEER, text="wider").problem


def test_an_empty_note_and_an_endless_one_are_refused() -> None:
    run = make_run("running", agent="claude")

    assert refused(run, STEER, text=" \n").field == "text"
    assert refused(run, STEER, text="x" * 5000).field == "text"


@pytest.mark.parametrize(
    ("budgets", "field"),
    [
        (None, "budgets"),
        (Budgets(evaluations=24), "budgets"),
        (Budgets(evaluations=2), "evaluations"),
        (Budgets(evaluations=24, wall_clock_s=1.0), "wall_clock_s"),
    ],
)
def test_an_extension_must_change_the_limits_and_leave_room_for_what_is_used(
    budgets: Budgets | None, field: str
) -> None:
    run = make_run("running", candidates=3)
    first = run.events.get(seq=1)
    long_ago = (timezone.now() - timedelta(minutes=1)).isoformat(timespec="microseconds")
    body = first.body.replace(first.log.at, long_ago)
    run.events.filter(seq=1).update(body=body)

    assert refused(run, EXTEND, budgets=budgets).field == field


def test_what_is_asked_is_pending_until_it_is_in_the_log() -> None:
    run = make_run("running", agent="claude")
    run.ask(STEER, "ada", "mind the tail")
    assert [each.text for each in run.pending_requests] == ["mind the tail"]

    make_event(run, run.requests.get().payload)

    assert run.requests_taken == 1
    assert run.pending_requests == []


def test_a_paused_run_that_is_resumed_waits_for_a_worker_at_once() -> None:
    run = make_paused()

    run.ask(RESUME, "ada")

    run.refresh_from_db()
    assert (run.status, run.reason, run.hints_sent) == ("queued", "", 1)
    assert Run.objects.drivable().filter(pk=run.pk).exists()


def test_a_paused_run_is_not_driven() -> None:
    run = make_paused()
    run.ask(EXTEND, "ada", budgets=Budgets(evaluations=40))

    assert Run.objects.take(run.pk, "a driver") is None
    assert Run.objects.active().filter(pk=run.pk).exists()
