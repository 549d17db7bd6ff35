"""Logs without a database: in memory, and in a folder for the command line.

Both number, stamp and store events as `runner.loop.Log` asks. They take one writer on trust: who
may drive a run is settled where runs are shared, not here.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.events import Event, make_event
from runner.wire import canonical, from_json, to_json


def stamp() -> str:
    """Now, as events write it: UTC, ISO 8601, microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class MemoryLog:
    """Keeps everything in this process. `events` may start with an earlier part of the run."""

    def __init__(
        self,
        run: str,
        events: list[Event] | None = None,
        artifacts: Mapping[str, bytes] | None = None,
        now: Callable[[], str] = stamp,
    ) -> None:
        self.run = run
        self.events = list(events or [])
        self.artifacts = dict(artifacts or {})
        self._now = now

    def emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> Event:
        event = make_event(self.run, len(self.events) + 1, self._now(), payload, artifacts)
        for content in (artifacts or {}).values():
            self.artifacts[hashlib.sha256(content).hexdigest()] = content
        self.events.append(event)
        return event

    def history(self) -> Iterator[Event]:
        return iter(list(self.events))

    def read(self, sha256: str) -> bytes:
        return self.artifacts[sha256]

    def hint(self, text: str) -> None:
        """Nobody watches."""


class FileLog:
    """Keeps `events.jsonl` and `artifacts/<sha256>` in a folder; opening it again goes on.

    `watch` hears of each event once it is on disk, `overhear` of what an agent is just saying.
    """

    def __init__(
        self,
        folder: Path,
        run: str,
        now: Callable[[], str] = stamp,
        watch: Callable[[Event], None] = lambda event: None,
        overhear: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.run = run
        self._events = folder / "events.jsonl"
        self._artifacts = folder / "artifacts"
        self._artifacts.mkdir(parents=True, exist_ok=True)
        self._now = now
        self._watch = watch
        self._overhear = overhear
        self._drop_torn_line()
        self._seq = sum(1 for _ in self.history())

    def emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> Event:
        for content in (artifacts or {}).values():
            self._keep(content)  # bytes before the line: an event never names a missing blob
        event = make_event(self.run, self._seq + 1, self._now(), payload, artifacts)
        with self._events.open("ab") as file:
            file.write(canonical(to_json(event)).encode() + b"\n")
        self._seq = event.seq
        self._watch(event)
        return event

    def history(self) -> Iterator[Event]:
        with self._events.open(encoding="utf-8") as file:
            for line in file:
                yield from_json(Event, json.loads(line))

    def read(self, sha256: str) -> bytes:
        return (self._artifacts / sha256).read_bytes()

    def hint(self, text: str) -> None:
        self._overhear(text)

    def _keep(self, content: bytes) -> None:
        path = self._artifacts / hashlib.sha256(content).hexdigest()
        partial = path.with_suffix(".partial")
        partial.write_bytes(content)
        os.replace(partial, path)

    def _drop_torn_line(self) -> None:
        """A killed writer may leave half a line; its event was never announced."""
        self._events.touch()
        content = self._events.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.truncate(self._events, whole)
