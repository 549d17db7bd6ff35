"""What the command line says while it works: progress on stderr, one document on stdout."""

from __future__ import annotations

import json
import sys
from typing import Any, TextIO

from runner import console
from runner.events import Event, EventType


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def tell_phase(phase: str) -> None:
    """Phases of an evaluation, for people who watch it."""
    if sys.stderr.isatty():
        tell(f"    {phase}")


def print_json(document: Any) -> None:
    print(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False))


class Narrator:
    """Tells of a run step by step and, to people who watch, of a turn as it is being said."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = ""

    def watch(self, event: Event) -> None:
        """Tell of an event; of a turn that was shown as it was said, only that it has ended."""
        line = console.step(event)
        if self._shown:
            self._write("\n")
            if event.type is EventType.message:
                line = console.costs(event)
            self._shown = ""
        if line:
            self._write(f"{line}\n")

    def overhear(self, text: str) -> None:
        """Show what is new in the text of the turn under way."""
        if not self._stream.isatty():
            return
        new = text.removeprefix(self._shown)
        if self._shown and len(new) == len(text):  # another turn: the last one was given up
            new = f"\n{text}"
        self._shown = text
        self._write(console.printable(new))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
