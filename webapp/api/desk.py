"""Where an outside agent's calls wait for their answers: one desk for each request it makes.

The answer is read from the run's log, so it does not matter which process drives the run, or how
often that one dies. Who may call is decided before.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from channels.db import database_sync_to_async

from runner.agents.external import HEARD, Awaited, Reply, over, refused
from runner.events import EventType, MessageKind, RunStatus
from runner.spec import RunSpec
from webapp.api import inbox
from webapp.api.models import ToolRequest
from webapp.runs import store
from webapp.runs.models import Event, Job, Run

if TYPE_CHECKING:
    from runner.mcp_server import Report

POLL_S = 0.1
PATIENCE_S = 10.0  # with a run that is queued: it is taken up at once, unless nobody is there
REPORT_S = 2.0
LONGEST_S = 30 * 60.0  # of one wait


class RunDesk:
    """Implements runner.mcp_server.Desk on rows."""

    def __init__(self, run: Run) -> None:
        self.run_pk = run.pk
        self.spec: RunSpec = run.spec

    async def call(self, tool: str, arguments: dict[str, Any], report: Report) -> Reply:
        taken = await self._put(tool, arguments)
        if isinstance(taken, Reply):
            return taken
        reading = _Reading(taken)
        deadline, reported = time.monotonic() + LONGEST_S, time.monotonic()
        while True:
            reply = await database_sync_to_async(reading.read_on)()
            if reply is not None:
                return reply
            now = time.monotonic()
            if now > deadline:
                remedy = "Call again with the same arguments: the call goes on, and is made once."
                return refused("call", "is not answered yet.", remedy)
            if now - reported > REPORT_S:
                reported = now
                await report(await database_sync_to_async(_doing)(self.run_pk))
            await asyncio.sleep(POLL_S)

    async def brief(self) -> str:
        return await database_sync_to_async(_brief)(self.run_pk)

    async def _put(self, tool: str, arguments: dict[str, Any]) -> ToolRequest | Reply:
        """Take the call in; a run that was just launched, or changes hands, is waited for."""
        patient_until = time.monotonic() + PATIENCE_S
        while True:
            taken = await database_sync_to_async(inbox.put)(self.run_pk, tool, arguments)
            if isinstance(taken, ToolRequest) or time.monotonic() > patient_until:
                return taken
            if not await database_sync_to_async(_is_queued)(self.run_pk):
                return taken
            await asyncio.sleep(POLL_S)


class _Reading:
    """Reads a run's log on from where the answer to a call may begin."""

    def __init__(self, row: ToolRequest) -> None:
        self._row = row
        self._awaited = Awaited(row.number, store.read)
        self._seq = row.heard_seq

    def read_on(self) -> Reply | None:
        """The reply if it is there; from then on the call counts as answered."""
        status, reason, last_seq = Run.objects.values_list("status", "reason", "last_seq").get(
            pk=self._row.run_id
        )
        reply = self._heard() if last_seq > self._seq else None
        if reply is None and RunStatus(status).ended:
            reply = over(RunStatus(status), reason)
        self._seq = max(self._seq, last_seq)
        if reply is not None:
            ToolRequest.objects.filter(pk=self._row.pk).update(delivered=True)
        return reply

    def _heard(self) -> Reply | None:
        news = Event.objects.filter(run=self._row.run_id, seq__gt=self._seq, type__in=HEARD)
        for event in news.order_by("seq"):
            self._seq = event.seq
            reply = self._awaited.hear(event.log)
            if reply is not None:
                return reply
        return None


def _is_queued(pk: int) -> bool:
    return Run.objects.filter(pk=pk, status=RunStatus.queued).exists()


def _doing(pk: int) -> str:
    """What goes on in the run, in a few words."""
    job = Job.objects.open().filter(run=pk).first()
    if job is not None and job.phase:
        return f"c{job.number} {job.phase}"
    status, reason = Run.objects.values_list("status", "reason").get(pk=pk)
    return "at work" if status == RunStatus.running else f"{status}: {reason}"


def _brief(pk: int) -> str:
    messages = Event.objects.filter(run=pk, type=EventType.message).order_by("-seq")
    for row in messages.iterator(50):
        payload = row.log.payload
        if payload.get("kind") == MessageKind.brief:
            return str(payload["text"])
    return ""
