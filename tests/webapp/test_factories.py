from __future__ import annotations

import pytest

from runner.events import RunStatus
from tests.factories import make_candidate, make_run, make_user
from webapp.runs.models import Event

pytestmark = pytest.mark.django_db


def test_a_finished_run_has_a_dense_log_and_its_best_candidate() -> None:
    run = make_run("finished", candidates=3, launched_by=make_user())

    seqs = list(Event.objects.filter(run=run).values_list("seq", flat=True))

    assert seqs == list(range(1, run.last_seq + 1))
    assert run.state is RunStatus.finished
    assert run.evaluations == 3
    assert run.best is not None
    assert run.best.number == 3


def test_a_failing_candidate_never_becomes_the_best() -> None:
    run = make_run("running")

    candidate = make_candidate(run, "wrong_values")

    assert candidate.speedup is None
    assert candidate.evaluation is not None
    assert run.best is None
