from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from django.utils import timezone

from runner.results import Evaluation, Verdict
from runner.spec import EvaluationSpec
from runner.wire import canonical, to_json
from tests.factories import make_evaluation, make_run
from tests.webapp.fakes import hangs_until_cancelled, passes
from webapp.runs import jobs
from webapp.runs.models import Job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


def make_job(**columns: object) -> Job:
    spec = EvaluationSpec("softmax", "// source", "cpp")
    text = canonical(to_json(spec))
    return Job.objects.create(
        run=make_run("running"), number=1, device="host", spec_text=text, **columns
    )


class Judge:
    def __init__(self, judge: object = passes) -> None:
        self.judge = judge
        self.calls = 0

    def __call__(
        self, spec: EvaluationSpec, *, cancel: threading.Event | None, progress: object
    ) -> Evaluation:
        self.calls += 1
        return self.judge(spec, cancel)  # type: ignore[operator]


def evaluate(job: Job, judge: Judge, shutdown: threading.Event | None = None) -> None:
    jobs.evaluate_job(job.pk, shutdown or threading.Event(), "me", evaluate=judge)
    job.refresh_from_db()


def test_a_job_is_evaluated_once_however_often_it_is_delivered() -> None:
    job, judge = make_job(), Judge()

    for _ in range(3):
        evaluate(job, judge)

    assert judge.calls == 1
    assert job.result is not None
    assert job.result.verdict is Verdict.passed
    assert (job.attempts, job.lease_until) == (1, None)


def test_a_job_that_another_worker_holds_is_left_to_it() -> None:
    job, judge = make_job(lease_until=timezone.now() + timedelta(seconds=9), lease_token=1), Judge()

    evaluate(job, judge)

    assert (judge.calls, job.lease_token) == (0, 1)


def test_a_job_whose_worker_died_is_taken_up_by_the_next() -> None:
    dead = timezone.now() - timedelta(seconds=1)
    job, judge = make_job(lease_until=dead, lease_token=1, attempts=1), Judge()

    evaluate(job, judge)

    assert (judge.calls, job.attempts, job.lease_token) == (1, 2, 2)
    assert job.result is not None


def test_a_result_under_a_stale_claim_is_dropped() -> None:
    job = make_job()

    def taken_over_meanwhile(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        Job.objects.filter(pk=job.pk).update(lease_token=5)
        return make_evaluation("passed", 99.0)

    evaluate(job, Judge(taken_over_meanwhile))

    assert (job.result_text, job.finished_at, job.lease_token) == ("", None, 5)


def test_after_three_workers_died_at_it_the_result_says_so() -> None:
    dead = timezone.now() - timedelta(seconds=1)
    job, judge = make_job(lease_until=dead, attempts=jobs.MAX_ATTEMPTS), Judge()

    evaluate(job, judge)

    assert judge.calls == 0
    assert job.result is not None
    assert job.result.verdict is Verdict.harness_error
    assert "died in each of 3 attempts" in job.result.reason


def test_a_shutdown_puts_the_job_back_and_does_not_count_as_an_attempt() -> None:
    job, shutdown = make_job(), threading.Event()

    def shut_down_meanwhile(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        shutdown.set()
        return hangs_until_cancelled(spec, cancel)

    evaluate(job, Judge(shut_down_meanwhile), shutdown)

    assert (job.finished_at, job.lease_until, job.attempts) == (None, None, 0)
    assert Job.objects.waiting().filter(pk=job.pk).exists()


def test_a_worker_that_shuts_down_takes_nothing_up() -> None:
    job, shutdown, judge = make_job(), threading.Event(), Judge()
    shutdown.set()

    evaluate(job, judge, shutdown)

    assert (judge.calls, job.lease_token) == (0, 0)


def test_a_cancelled_job_is_over_without_a_result() -> None:
    job = make_job()
    Job.objects.filter(pk=job.pk).update(cancelled=False)

    def cancelled_meanwhile(spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        job.cancel()
        return hangs_until_cancelled(spec, cancel)

    evaluate(job, Judge(cancelled_meanwhile))

    assert job.finished_at is not None
    assert (job.result_text, job.cancelled) == ("", True)


def test_a_waiting_job_that_is_cancelled_is_over_at_once() -> None:
    job, judge = make_job(), Judge()

    job.cancel()
    evaluate(job, judge)

    assert (judge.calls, job.cancelled) == (0, True)
    assert job.finished_at is not None
