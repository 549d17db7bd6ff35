"""Tells whoever watches a run that it has news. A nudge may be lost; it carries no news itself.

The text of a turn under way travels the same road: the latest is sent, the rest is dropped, and
none of it is kept. All of it leaves through one background thread with its own event loop and
connection: a slow or absent channel layer can neither delay nor fail the writer, and a burst
becomes few messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from typing import Any

from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)

RUNS_GROUP = "runs"
SEND_TIMEOUT_S = 2.0
HINT_CHARACTERS = 8_000  # the end of a turn under way; the whole is in the log once it is over
HINT_EVERY_S = 0.1


def run_group(pk: int) -> str:
    return f"run.{pk}"


class Nudger:
    """Coalesces by group: of what is waiting to be sent to a group, the latest is sent, once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, None] = {}
        self._hints: dict[str, dict[str, Any]] = {}
        self._hinted: dict[str, float] = {}  # when a group was last sent a hint
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def nudge(self, *groups: str) -> None:
        with self._lock:
            self._waiting.update(dict.fromkeys(groups))
            self._start()
        self._wake.set()

    def hint(self, group: str, after: int, text: str) -> None:
        """What is being said after event `after`; at most one a tenth of a second is sent."""
        with self._lock:
            self._hints[group] = {"type": "hint", "after": after, "text": text[-HINT_CHARACTERS:]}
            self._start()
        self._wake.set()

    def _start(self) -> None:
        if self._thread is None or self._pid != os.getpid():  # threads do not survive a fork
            self._pid = os.getpid()
            self._thread = threading.Thread(target=self._run, name="nudger", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while True:
                self._wake.wait(HINT_EVERY_S if self._hints else None)
                self._wake.clear()
                messages = self._due(time.monotonic())
                if messages:
                    runner.run(self._send(messages))

    def _due(self, now: float) -> list[tuple[str, dict[str, Any]]]:
        """What may be sent now, hints first: the event that makes them old comes after them."""
        with self._lock:
            early = {
                g: h for g, h in self._hints.items() if now - self._hinted.get(g, 0) < HINT_EVERY_S
            }
            hints = {group: hint for group, hint in self._hints.items() if group not in early}
            nudges, self._waiting, self._hints = list(self._waiting), {}, early
            self._hinted = {g: at for g, at in self._hinted.items() if now - at < HINT_EVERY_S}
            self._hinted |= dict.fromkeys(hints, now)
        return [*hints.items(), *((group, {"type": "nudge"}) for group in nudges)]

    async def _send(self, messages: list[tuple[str, dict[str, Any]]]) -> None:
        try:
            layer = get_channel_layer()
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for group, message in messages:
                    await layer.group_send(group, message)
        except Exception as error:  # a lost nudge costs a watcher one poll period, never an event
            groups = [group for group, _ in messages]
            logger.warning("nudge to %s lost: %s: %s", groups, type(error).__name__, error)


_nudger = Nudger()


def nudge_run(pk: int) -> None:
    """To call after the commit."""
    _nudger.nudge(run_group(pk), RUNS_GROUP)


def hint_run(pk: int, after: int, text: str) -> None:
    """Show watchers what is being said after event `after`; never waits, never fails."""
    _nudger.hint(run_group(pk), after, text)
