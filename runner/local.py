"""Driving in this process: its own device evaluates, and people ask through a file."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from runner import evaluate
from runner.evaluate.ceilings import ceilings
from runner.events import ControlAction, ControlPayload
from runner.loop import EvaluationCancelled
from runner.partial import RequestFile
from runner.results import Ceiling, Evaluation
from runner.spec import EvaluationSpec

PAUSE_S = 0.25  # how often a paused run looks for requests
TERMINAL = "the person at the terminal"


class LocalEvaluator:
    """Evaluates one candidate at a time; `progress` hears phases, `cancel` gives up."""

    def __init__(self, cancel: threading.Event, progress: Callable[[str], None]) -> None:
        self._cancel = cancel
        self._progress = progress

    def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
        def progress(phase: str) -> None:
            self._progress(f"c{number} {phase}")

        try:
            return evaluate.evaluate(spec, cancel=self._cancel, progress=progress)
        except evaluate.Cancelled as error:
            raise EvaluationCancelled from error

    def ceilings(self, device: str) -> tuple[Ceiling, ...]:
        """Measured on the first run of a machine, which takes some seconds, and kept."""
        return ceilings(device)


class TerminalControl:
    """Requests from a file. Ctrl-C adds one for a stop, which is heeded at the next step.

    A second Ctrl-C, or SIGTERM, gives the evaluation up as well.
    """

    def __init__(
        self, requests: RequestFile, cancel: threading.Event, notice: Callable[[str], None]
    ) -> None:
        self._requests = requests
        self._stop = threading.Event()
        self._asked = False
        self._cancel = cancel
        self._notice = notice

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)

    def poll(self, after: int) -> ControlPayload | None:
        if self._stop.is_set() and not self._asked:
            self._asked = True
            self._requests.add(_stop)
        return self._requests.first_after(after)

    def pause(self) -> None:
        self._stop.wait(PAUSE_S)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set() or number == signal.SIGTERM:
            self._cancel.set()
        else:
            self._notice("stopping after this step; press Ctrl-C again to give it up")
        self._stop.set()


def _stop(earlier: tuple[ControlPayload, ...]) -> ControlPayload:
    return ControlPayload(ControlAction.stop, TERMINAL, request=len(earlier) + 1)
