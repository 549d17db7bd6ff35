"""An outside agent beside real workers: real measurements, and a driver that is killed."""

from __future__ import annotations

import io
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client
from mcp.types import CallToolResult

from runner.archive import read_archive
from tests.webapp.outside import SOURCE, Site, launch, text_of, token_of, types_of
from tests.webapp.test_workers import Workers, ended, under_evaluation, until
from webapp.api.models import ToolRequest
from webapp.runs.archives import export_archive
from webapp.runs.models import Job

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(tmp_path)
    yield workers
    workers.stop()


def test_a_waiting_call_is_answered_though_its_driver_is_killed(workers: Workers) -> None:
    answers: list[CallToolResult] = []

    async def optimise(client: Client) -> None:
        written = {"source": SOURCE, "idea": "A plain loop."}
        for name, arguments in (
            ("write_candidate", written),
            ("benchmark", {"candidate": 1}),
            ("finish", {"summary": "One loop."}),
        ):
            answers.append(await client.call_tool(name, arguments))

    first = workers.agents()
    workers.device()
    run = launch()
    with Site() as site:
        asking = threading.Thread(target=site.talk, args=(run, token_of(run), optimise))
        asking.start()
        until(under_evaluation)
        first.send_signal(signal.SIGKILL)
        first.wait()
        workers.agents()
        until(lambda: ended(run))
        asking.join(30)

    assert [answer.is_error for answer in answers] == [False, False, False]
    assert "c1: passed" in text_of(answers[1])
    types = types_of(run)
    assert types.count("tool_call") == types.count("tool_result") == 3
    assert (types.count("candidate"), types.count("evaluation")) == (1, 1)
    assert (Job.objects.count(), ToolRequest.objects.count()) == (1, 3)
    file = io.BytesIO()
    export_archive(run, file)
    with read_archive(file) as archive:
        assert (archive.state.status, archive.state.best) == ("finished", 1)
