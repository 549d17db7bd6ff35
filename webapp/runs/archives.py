"""Run archives into rows and back. What a valid archive is, runner.archive decides.

An import is whole or it is nothing: every byte is verified before the first is stored, and all
rows appear in one transaction.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime
from typing import IO

from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction

from runner.archive import Archive, read_archive, write_archive
from runner.bundle import ArchiveError
from runner.events import Event
from runner.wire import canonical, to_json
from webapp.runs import projection, store
from webapp.runs.models import Artifact, Run
from webapp.runs.models import Event as EventRow
from webapp.runs.nudges import nudge_run

BATCH = 500


@dataclass(frozen=True)
class Imported:
    """`created` is False when the run was here already and nothing was written."""

    run: Run
    created: bool


def import_archive(
    file: str | os.PathLike[str] | IO[bytes], user: AbstractBaseUser | None
) -> Imported:
    """Bring a run in under a new number and its old uuid. Raises ArchiveError, changing nothing."""
    with read_archive(file) as archive:
        uuid = archive.manifest.run
        existing = Run.objects.filter(uuid=uuid).first()
        if existing:
            return Imported(existing, created=False)
        archive.verify()
        for sha256 in archive.manifest.artifacts:
            store.put_chunks(archive.chunks(sha256), sha256)
        with transaction.atomic():
            run, created = Run.objects.get_or_create(uuid=uuid, defaults=_columns(archive, user))
            if created:
                _write_rows(run, archive)
                transaction.on_commit(lambda: nudge_run(run.pk))
    return Imported(run, created)


def export_archive(run: Run, target: str | os.PathLike[str] | IO[bytes]) -> None:
    """Write the run as it is now; the same run always gives the same bytes."""
    rows = EventRow.objects.filter(run=run).order_by("seq")
    write_archive(target, (row.log for row in rows.iterator(BATCH)), store.read)


def _columns(archive: Archive, user: AbstractBaseUser | None) -> dict[str, object]:
    spec = archive.manifest.spec
    return {
        "spec_text": canonical(to_json(spec)),
        "problem": spec.problem,
        "device": spec.device,
        "imported": True,
        "launched_by": user,
        "created_at": datetime.fromisoformat(archive.manifest.first_at),
    }


def _write_rows(run: Run, archive: Archive) -> None:
    sizes = archive.manifest.artifacts.items()
    blobs = [Artifact(sha256=sha256, size=size) for sha256, size in sizes]
    Artifact.objects.bulk_create(blobs, BATCH, ignore_conflicts=True)
    rows = [_row(run, event) for event in archive.events]
    EventRow.objects.bulk_create(rows, BATCH)
    for event in archive.events:
        try:
            projection.apply(run, event)
        except projection.ProjectionError as error:
            raise ArchiveError(f"events.jsonl line {event.seq}", str(error)) from error
    run.last_seq = len(rows)
    run.save()


def _row(run: Run, event: Event) -> EventRow:
    body = canonical(to_json(event))
    return EventRow(run=run, seq=event.seq, type=event.type.value, body=body)
