from __future__ import annotations

import threading

import pytest
from django.db import connection
from pytest_django import DjangoAssertNumQueries, Settings

from runner.events import (
    CandidatePayload,
    ControlPayload,
    EvaluationPayload,
    MessagePayload,
    NotePayload,
    RunPayload,
    RunStatus,
    ToolResultPayload,
)
from tests.factories import make_candidate, make_evaluation, make_run
from webapp.runs import store
from webapp.runs.log import DatabaseLog, LeaseLost
from webapp.runs.models import Artifact, Event, Run
from webapp.runs.projection import ProjectionError

pytestmark = pytest.mark.django_db


def taken(run: Run) -> DatabaseLog:
    token = Run.objects.take(run.pk, "this test")
    assert token is not None
    return DatabaseLog(run, token)


def candidate(number: int, sha256: str, parent: int | None = None) -> CandidatePayload:
    return CandidatePayload(number, parent, "cpp", "wider", "search", sha256)


def test_events_are_numbered_densely_and_come_back_as_they_were_written() -> None:
    run = make_run("queued")
    log = taken(run)

    written = [
        log.emit(RunPayload(RunStatus.running, "go", run.spec)),
        log.emit(MessagePayload("search", "widths first")),
        log.emit(NotePayload("ada", "mind the tail")),
    ]

    assert [event.seq for event in written] == [1, 2, 3]
    assert list(log.history()) == written
    assert {event.run for event in written} == {run.uuid}


def test_a_stale_token_is_refused_and_writes_nothing() -> None:
    run = make_run("queued")
    old = taken(run)
    Run.objects.filter(pk=run.pk).update(lease_until=None)
    new = taken(run)
    new.emit(RunPayload(RunStatus.running, "go", run.spec))

    with pytest.raises(LeaseLost):
        old.emit(MessagePayload("search", "I am not dead"))

    assert Event.objects.filter(run=run).count() == 1
    assert new.emit(MessagePayload("search", "mine")).seq == 2


def test_an_event_that_contradicts_the_log_takes_its_number_back() -> None:
    run = make_run("queued")
    log = taken(run)
    log.emit(RunPayload(RunStatus.running, "go", run.spec))

    with pytest.raises(ProjectionError):
        log.emit(EvaluationPayload(7, make_evaluation()))

    run.refresh_from_db()
    assert run.last_seq == 1
    assert log.emit(MessagePayload("search", "on")).seq == 2


def test_a_log_begins_with_the_spec_or_not_at_all() -> None:
    run = make_run("queued")
    log = taken(run)

    for payload in (MessagePayload("search", "hello"), RunPayload(RunStatus.running, "go")):
        with pytest.raises(ProjectionError, match="must hold its spec"):
            log.emit(payload)

    assert log.emit(RunPayload(RunStatus.running, "go", run.spec)).seq == 1


def test_artifacts_are_stored_and_known_before_the_event_that_names_them() -> None:
    run = make_run("queued")
    log = taken(run)
    log.emit(RunPayload(RunStatus.running, "go", run.spec))

    sha256 = store.put(b"int main;")
    event = log.emit(candidate(1, sha256), {"source": b"int main;"})

    assert [(ref.name, ref.sha256, ref.size) for ref in event.artifacts] == [("source", sha256, 9)]
    assert log.read(sha256) == b"int main;"
    assert Artifact.objects.get(pk=sha256).size == 9


def test_rows_follow_the_events() -> None:
    run = make_run("queued")
    log = taken(run)
    log.emit(RunPayload(RunStatus.running, "go", run.spec))
    for number, (verdict, speedup) in enumerate(
        [("passed", 1.5), ("passed", 2.5), ("passed", 2.0), ("crashed", None)], start=1
    ):
        source = b"// %d" % number
        payload = candidate(number, store.put(source), number - 1 or None)
        log.emit(payload, {"source": source})
        log.emit(EvaluationPayload(number, make_evaluation(verdict, speedup)))
    log.emit(RunPayload(RunStatus.finished, "budget used"))

    run.refresh_from_db()
    assert (run.status, run.reason, run.evaluations) == ("finished", "budget used", 4)
    assert run.started_at is not None
    assert run.ended_at is not None
    assert run.best is not None
    assert run.best.number == 2
    assert run.last_seq == Event.objects.filter(run=run).count() == 10
    verdicts = list(run.candidates.values_list("number", "verdict", "parent__number", "speedup"))
    assert [row[:3] for row in verdicts] == [
        (1, "passed", None),
        (2, "passed", 1),
        (3, "passed", 2),
        (4, "crashed", 3),
    ]
    assert [row[3] for row in verdicts] == pytest.approx([1.5, 2.5, 2.0, None])


def test_an_evaluation_of_one_case_is_used_up_and_ranks_nobody() -> None:
    run = make_run("running")
    make_candidate(run, None)
    log = taken(run)

    log.emit(EvaluationPayload(1, make_evaluation("passed", 9.0), "check"))
    log.emit(EvaluationPayload(1, make_evaluation("passed", 9.0), "case 512x2048-fp32"))

    run.refresh_from_db()
    assert (run.evaluations, run.best) == (2, None)
    assert run.candidates.get().verdict == ""
    log.emit(EvaluationPayload(1, make_evaluation("passed", 2.0)))
    run.refresh_from_db()
    assert (run.evaluations, run.candidates.get().speedup) == (3, 2.0)
    with pytest.raises(ProjectionError):
        log.emit(EvaluationPayload(2, make_evaluation(), "check"))


def test_whatever_gets_on_with_a_run_clears_the_count_of_fruitless_starts() -> None:
    run = make_run("running")
    log = taken(run)
    assert Run.objects.get().fruitless_starts == 1
    log.emit(RunPayload(RunStatus.running, "resumed"))
    assert Run.objects.get().fruitless_starts == 1

    log.emit(ToolResultPayload("e1.1", True, "read"))

    assert Run.objects.get().fruitless_starts == 0


def test_an_event_costs_few_queries_however_long_the_log_is(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    run = make_run("running", candidates=5)
    log = taken(run)

    with django_assert_max_num_queries(8):
        log.emit(MessagePayload("search", "next"))


@pytest.mark.django_db(transaction=True)
def test_two_writers_under_one_token_still_number_densely() -> None:
    run = make_run("queued")
    log = taken(run)
    log.emit(RunPayload(RunStatus.running, "go", run.spec))

    def write(name: str) -> None:
        for index in range(20):
            log.emit(NotePayload(name, f"note {index}"))
        connection.close()

    writers = [threading.Thread(target=write, args=(name,)) for name in ("ada", "grace")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    seqs = list(Event.objects.filter(run=run).values_list("seq", flat=True))
    assert seqs == list(range(1, 42))


@pytest.mark.django_db(transaction=True)
def test_an_absent_channel_layer_costs_no_event(settings: Settings) -> None:
    layer = settings.CHANNEL_LAYERS["default"] | {"CONFIG": {"hosts": ["unix:///nowhere.sock"]}}
    settings.CHANNEL_LAYERS = {"default": layer}
    run = make_run("queued")
    log = taken(run)

    log.emit(RunPayload(RunStatus.running, "go", run.spec))
    log.emit(ControlPayload("stop", "ada"))

    assert Event.objects.filter(run=run).count() == 2
