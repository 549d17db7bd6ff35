"""People ask something of a run whose agent is just speaking: a model's turn, really streamed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from django.db import connection

from runner.events import ControlAction, EventType
from runner.spec import Budgets, RunSpec, SpecError
from runner.state import RunState
from tests.factories import make_user
from tests.runner.messages_server import MessagesServer, softmax_optimisation
from tests.webapp.crew import eventually
from tests.webapp.fakes import DeviceThread
from webapp.runs import driver
from webapp.runs.models import Run
from webapp.runs.reconciler import reconcile

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

KEY = "a key of this test"
PACE_S = 0.01  # between two parts of a stream: the longest turn takes seconds


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MessagesServer]:
    with MessagesServer(softmax_optimisation(PACE_S), key=KEY) as server:
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        yield server


class Driving:
    """A run that is driven, again and again as by a worker, until it waits or is over."""

    def __init__(self) -> None:
        spec = RunSpec("softmax", agent="claude", budgets=Budgets(evaluations=6))
        self.run = Run.objects.launch(spec, make_user())
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._drive)

    def __enter__(self) -> Driving:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        with contextlib.suppress(SpecError):  # it is over, or about to be
            self.run.ask(ControlAction.stop, "the test")
        self._thread.join()

    def _drive(self) -> None:
        while not self._done.is_set():
            driver.drive_run(self.run.pk, threading.Event(), "a driver", examiner=None)
            time.sleep(0.02)
        connection.close()

    @property
    def state(self) -> RunState:
        return RunState.from_events(row.log for row in self.run.events.all())

    @property
    def status(self) -> str:
        self.run.refresh_from_db()
        return self.run.status

    def said(self) -> int:
        """How many turns are whole."""
        turns = self.run.events.filter(type=EventType.message.value)
        return sum(bool(row.log.artifacts) for row in turns)

    def until_speaking(self, server: MessagesServer) -> None:
        """A turn is asked for and its answer is under way."""
        eventually(lambda: len(server.requests) > self.said() > 1, "the agent speaks")


def test_a_pause_cuts_the_turn_and_a_resumption_asks_for_it_again(server: MessagesServer) -> None:
    with DeviceThread(), Driving() as driving:
        driving.until_speaking(server)
        driving.run.ask(ControlAction.pause, "ada")
        eventually(lambda: driving.status == "paused", "it is paused", 5)
        asked, whole = len(server.requests), driving.said()
        time.sleep(0.5)
        assert len(server.requests) == asked, "nobody speaks in a pause"

        driving.run.ask(ControlAction.steer, "ada", "Mind the odd rows.")
        driving.run.ask(ControlAction.resume, "ada")
        eventually(lambda: driving.said() > whole, "it goes on")

        heard = [str(request["messages"]) for request in server.requests[asked:]]
        assert "Mind the odd rows." in heard[0]


def test_a_stop_ends_a_run_whose_agent_is_speaking_within_seconds(server: MessagesServer) -> None:
    with DeviceThread(), Driving() as driving:
        driving.until_speaking(server)
        driving.run.ask(ControlAction.stop, "ada")
        began = time.monotonic()
        eventually(lambda: driving.status == "stopped", "it is stopped")
        assert time.monotonic() - began < 10

    assert driving.state.summary, "closing words are said of a stopped run too"


def test_a_run_stopped_in_a_pause_ends_without_another_word(server: MessagesServer) -> None:
    with DeviceThread(), Driving() as driving:
        driving.until_speaking(server)
        driving.run.ask(ControlAction.pause, "ada")
        eventually(lambda: driving.status == "paused", "it is paused", 5)
        asked = len(server.requests)

        driving.run.ask(ControlAction.stop, "ada")
        reconcile()

        assert driving.status == "stopped"
        assert len(server.requests) == asked
