"""Tells whoever watches a run that it has news. A nudge may be lost; it carries no news itself.

Nudges leave through one background thread with its own event loop and connection: a slow or
absent channel layer can neither delay nor fail the writer, and a burst becomes few messages.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading

from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)

RUNS_GROUP = "runs"
SEND_TIMEOUT_S = 2.0


def run_group(pk: int) -> str:
    return f"run.{pk}"


class Nudger:
    """Coalesces by group: a group that is already waiting to be sent is not queued again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, None] = {}
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._pid = 0

    def nudge(self, *groups: str) -> None:
        with self._lock:
            self._waiting.update(dict.fromkeys(groups))
            if self._thread is None or self._pid != os.getpid():  # threads do not survive a fork
                self._pid = os.getpid()
                self._thread = threading.Thread(target=self._run, name="nudger", daemon=True)
                self._thread.start()
        self._wake.set()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            while True:
                self._wake.wait()
                self._wake.clear()
                with self._lock:
                    groups, self._waiting = list(self._waiting), {}
                runner.run(self._send(groups))

    async def _send(self, groups: list[str]) -> None:
        try:
            layer = get_channel_layer()
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for group in groups:
                    await layer.group_send(group, {"type": "nudge"})
        except Exception as error:  # a lost nudge costs a watcher one poll period, never an event
            logger.warning("nudge to %s lost: %s: %s", groups, type(error).__name__, error)


_nudger = Nudger()


def nudge_run(pk: int) -> None:
    """To call after the commit."""
    _nudger.nudge(run_group(pk), RUNS_GROUP)
