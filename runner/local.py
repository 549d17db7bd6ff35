"""Driving in this process: its own device evaluates, and the person at the terminal may stop it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from runner import evaluate
from runner.evaluate.ceilings import ceilings
from runner.events import ControlAction, ControlPayload
from runner.loop import EvaluationCancelled, Interrupted
from runner.results import Ceiling, Evaluation
from runner.spec import EvaluationSpec


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
    """Ctrl-C asks for a stop at the next step; a second one, or SIGTERM, gives up at once."""

    def __init__(self, cancel: threading.Event, notice: Callable[[str], None]) -> None:
        self._stop = threading.Event()
        self._cancel = cancel
        self._notice = notice

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._interrupt)
        signal.signal(signal.SIGTERM, self._interrupt)

    def poll(self, after: int) -> ControlPayload | None:
        if after or not self._stop.is_set():
            return None
        return ControlPayload(ControlAction.stop, "the person at the terminal", request=1)

    def pause(self) -> None:
        raise Interrupted("nobody at a terminal can resume a paused run")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._stop.is_set() or number == signal.SIGTERM:
            self._cancel.set()
        else:
            self._notice("stopping after this evaluation; press Ctrl-C again to give it up")
        self._stop.set()
