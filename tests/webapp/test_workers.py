"""Real Celery workers, killed with -9 in the middle of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from runner.spec import Budgets, RunSpec
from tests.factories import make_user
from webapp.fleet import programs
from webapp.fleet.models import Device, Worker
from webapp.fleet.supervisor import Program
from webapp.runs.models import Event, Job, Run
from webapp.runs.reconciler import reconcile

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

PATIENCE_S = 120.0


class Workers:
    """Starts workers on the test's own database and ends them, with everything they started."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.environment = dict(
            os.environ,
            DATABASE_URL=f"sqlite:///{connection.settings_dict['NAME']}",
            WARPDECK_LEASE_S="2",
        )
        self.running: list[subprocess.Popen[bytes]] = []

    def agents(self) -> subprocess.Popen[bytes]:
        return self._start(programs.agents(self.environment))

    def device(self) -> subprocess.Popen[bytes]:
        return self._start(programs.device("host", self.environment))

    def stop(self) -> None:
        for process in self.running:
            process.terminate()
        for process in self.running:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def _start(self, program: Program) -> subprocess.Popen[bytes]:
        with (self.logs / f"{program.name}.log").open("ab") as log:
            process = subprocess.Popen(
                program.argv,
                env=program.environment,
                cwd=settings.BASE_DIR,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        return process


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(tmp_path)
    yield workers
    workers.stop()


def launch(evaluations: int) -> Run:
    budgets = Budgets(evaluations=evaluations)
    return Run.objects.launch(
        RunSpec("softmax", case_set="host-quick", budgets=budgets), make_user()
    )


def until(condition: Callable[[], bool]) -> None:
    """Wait, with the reconciler at work as beside real workers."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        reconcile()
        time.sleep(0.1)


def ended(run: Run) -> bool:
    run.refresh_from_db()
    return run.state.ended


def evaluated(run: Run, count: int) -> bool:
    run.refresh_from_db()
    assert run.status != "failed", run.reason
    return run.evaluations >= count


def under_evaluation() -> bool:
    return Job.objects.open().exclude(lease_until=None).exists()


def assert_whole(run: Run, evaluations: int) -> None:
    """Nothing lost, nothing doubled."""
    run.refresh_from_db()
    assert (run.status, run.evaluations) == ("finished", evaluations), run.reason
    types = list(Event.objects.filter(run=run).values_list("type", flat=True))
    seqs = list(Event.objects.filter(run=run).values_list("seq", flat=True))
    assert seqs == list(range(1, run.last_seq + 1))
    assert types.count("candidate") == types.count("evaluation") == evaluations
    assert types.count("budget") == evaluations
    assert Job.objects.filter(run=run).count() == evaluations
    assert not run.candidates.filter(verdict="harness_error").exists()


def test_a_run_survives_the_death_of_its_agent_worker(workers: Workers) -> None:
    first = workers.agents()
    workers.device()
    run = launch(4)
    until(lambda: evaluated(run, 1) and under_evaluation())

    first.send_signal(signal.SIGKILL)
    first.wait()
    workers.agents()

    until(lambda: ended(run))
    assert_whole(run, 4)
    statuses = [event.log.payload.get("reason", "") for event in run.events.filter(type="run")]
    assert any(reason.startswith("resumed after") for reason in statuses)


def test_a_run_survives_the_death_of_its_device_worker(workers: Workers) -> None:
    workers.agents()
    first = workers.device()
    run = launch(3)
    until(lambda: evaluated(run, 1) and under_evaluation())

    first.send_signal(signal.SIGKILL)
    first.wait()
    workers.device()

    until(lambda: ended(run))
    assert_whole(run, 3)
    assert Job.objects.filter(run=run, attempts__gt=1).exists()


def test_workers_that_are_asked_to_end_hand_the_run_back_and_sign_off(workers: Workers) -> None:
    agents, device = workers.agents(), workers.device()
    run = launch(3)
    until(under_evaluation)

    for process in (agents, device):
        process.send_signal(signal.SIGTERM)
    assert [process.wait(30) for process in (agents, device)] == [0, 0]

    run.refresh_from_db()
    assert (run.status, run.lease_until) == ("queued", None)
    assert not Worker.objects.live().exists()
    assert not Device.objects.live().exists()
    assert not under_evaluation()
    workers.agents()
    workers.device()
    until(lambda: ended(run))
    assert_whole(run, 3)
