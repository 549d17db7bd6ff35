"""DatabaseLog: where a driver writes its run. One writer at a time, fenced by the lease's token.

An event, the rows it changes and the next sequence number commit together or not at all; whoever
watches is told afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from django.db.models import F

from runner.events import Event, make_event
from runner.loop import Interrupted
from runner.wire import canonical, to_json
from webapp.runs import projection, store
from webapp.runs.models import Artifact, Run
from webapp.runs.models import Event as EventRow
from webapp.runs.nudges import hint_run, nudge_run


class LeaseLost(Interrupted):
    """Another driver holds the run now; nothing was written."""


class DatabaseLog:
    """Implements runner.loop.Log for one run under one lease token."""

    def __init__(self, run: Run, token: int) -> None:
        self.run_pk = run.pk
        self.run_uuid = run.uuid
        self.token = token
        self.last_seq = 0  # of what we wrote; a hint belongs to what comes after it

    def emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> Event:
        """Append one event. Raises LeaseLost when the token is no longer the run's."""
        blobs = artifacts or {}
        for content in blobs.values():
            store.put(content)  # bytes before rows: a row never names a blob that is not there
        with transaction.atomic():
            run = self._next_seq()
            event = make_event(self.run_uuid, run.last_seq, now(), payload, blobs)
            append(run, event)
            transaction.on_commit(lambda: nudge_run(self.run_pk))
        self.last_seq = event.seq
        return event

    def history(self) -> Iterator[Event]:
        for row in EventRow.objects.filter(run=self.run_pk).order_by("seq").iterator(500):
            yield row.log

    def read(self, sha256: str) -> bytes:
        return store.read(sha256)

    def hint(self, text: str) -> None:
        hint_run(self.run_pk, self.last_seq, text)

    def _next_seq(self) -> Run:
        held = Run.objects.filter(pk=self.run_pk, lease_token=self.token)
        if held.update(last_seq=F("last_seq") + 1) != 1:
            raise LeaseLost(f"run {self.run_pk}: token {self.token} no longer holds the lease")
        return Run.objects.select_related("best").get(pk=self.run_pk)


def append(run: Run, event: Event) -> None:
    """Write an event and everything that follows from it, inside the caller's transaction."""
    EventRow.objects.create(
        run=run, seq=event.seq, type=event.type.value, body=canonical(to_json(event))
    )
    for ref in event.artifacts:
        Artifact.objects.get_or_create(sha256=ref.sha256, defaults={"size": ref.size})
    projection.apply(run, event)
    run.save(update_fields=projection.RUN_FIELDS)


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
