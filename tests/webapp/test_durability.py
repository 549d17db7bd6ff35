"""Whatever is killed at whatever moment, the log comes out as if nothing had been."""

from __future__ import annotations

import io
import subprocess
import threading
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from runner.archive import read_archive
from runner.events import RunStatus
from runner.results import Evaluation
from runner.spec import Budgets, EvaluationSpec, RunSpec
from runner.state import RunState
from tests.factories import make_user
from tests.runner.messages_server import MessagesServer, softmax_optimisation
from tests.webapp import quick_device
from tests.webapp.crew import Crew, Reader, ended, essence, eventually
from tests.webapp.fakes import DeviceThread
from webapp.runs import driver
from webapp.runs.archives import export_archive
from webapp.runs.models import Job, Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

SEARCH = RunSpec("softmax", budgets=Budgets(evaluations=8))
CLAUDE = RunSpec("softmax", agent="claude", budgets=Budgets(evaluations=10))
PLANTED = "sk-ant-planted-3e9b60d417"


def undisturbed(spec: RunSpec) -> list[tuple[object, ...]]:
    """The same run, driven in this process from its beginning to its end, without analyses."""
    run = Run.objects.launch(spec, make_user())

    def judge(wanted: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        return quick_device.judge(wanted, cancel=None, progress=lambda phase: None)

    with DeviceThread(judge):
        driver.drive_run(run.pk, threading.Event(), "a driver", examiner=None)
    assert ended(run)
    return essence(run)


def assert_whole(run: Run) -> None:
    """Dense, nothing made or measured twice, and an archive that anybody can read."""
    assert run.state is RunStatus.finished, run.reason
    assert list(run.events.values_list("seq", flat=True)) == list(range(1, run.last_seq + 1))
    state = RunState.from_events(row.log for row in run.events.all())
    assert Job.objects.filter(run=run).count() == run.evaluations == state.evaluations_used
    assert run.events.filter(type="analysis").count() == len(state.analyses)
    archive_of(run)


def archive_of(run: Run) -> bytes:
    exported = io.BytesIO()
    export_archive(run, exported)
    with read_archive(exported) as archive:
        archive.verify()
    return exported.getvalue()


def test_a_run_goes_its_course_whichever_program_is_killed(tmp_path: Path) -> None:
    user = make_user()
    expected = undisturbed(SEARCH)
    order = ("device", "agents", "valkey", "web", "device", "agents")
    with Crew(tmp_path) as crew:
        eventually(lambda: crew.answers, "the web answers")
        run = Run.objects.launch(SEARCH, user)
        reader = Reader(crew, run, user)
        reader.start()
        killed = crew.kill_during(run, 7, order)
        eventually(lambda: ended(run), "the run is over")
        eventually(lambda: len(reader.seqs) >= run.last_seq, "the reader has seen all of it")
        reader.over.set()

    assert killed == len(order)
    assert essence(run) == expected
    assert_whole(run)
    analysed = [row.log.payload for row in run.events.filter(type="analysis")]
    assert [each["candidate"] for each in analysed] == list(range(1, run.evaluations + 1))
    assert reader.seqs == list(range(1, run.last_seq + 1))
    assert reader.connections >= 2


def test_a_conversation_with_a_model_goes_on_where_its_driver_died_and_its_key_is_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", PLANTED)
    with MessagesServer(softmax_optimisation(), key=PLANTED) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        expected = undisturbed(CLAUDE)
        turns = len(server.requests)
    with MessagesServer(softmax_optimisation(0.004), key=PLANTED) as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        with Crew(tmp_path) as crew:
            run = Run.objects.launch(CLAUDE, make_user())
            order = ("agents", "device", "agents", "agents")
            killed = crew.kill_during(run, 3, order)
            eventually(lambda: ended(run), "the run is over")
            held = {name for name in crew.running if PLANTED.encode() in crew.environment(name)}
        assert server.refused == []

    assert killed == len(order)
    assert essence(run) == expected
    assert_whole(run)
    assert turns <= len(server.requests) <= turns + order.count("agents")
    assert held <= {"agents"}
    assert_nowhere(PLANTED, tmp_path, archive_of(run))


def assert_nowhere(key: str, logs: Path, archive: bytes) -> None:
    assert key.encode() not in archive
    database = Path(connection.settings_dict["NAME"])
    files = [*logs.rglob("*"), *settings.DATA.rglob("*"), *database.parent.glob("*.sqlite3*")]
    read = [path for path in files if path.is_file() and path.stat().st_size]
    assert any(path.name == "agents.log" for path in read)
    assert any(path.parent.parent.name == "artifacts" for path in read)
    assert database in read
    assert holding(CLAUDE.agent, read) != []
    assert holding(key, read) == []


def holding(word: str, files: list[Path]) -> list[str]:
    """The files that hold a word, as another process finds them.

    This process must not open its own database as a file: closing it would drop the locks that
    SQLite holds on it, and the next to connect would cut off memory that is still shared.
    """
    found = subprocess.run(["grep", "-lF", "--", word, *files], capture_output=True, text=True)
    assert found.returncode in (0, 1), found.stderr
    return found.stdout.splitlines()
