"""What stands around an entry on its page: evidence, who read it, and every change to it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from webapp.knowledge.models import Entry, FieldChange, Revision
from webapp.runs.models import Candidate, Run

SHOWN_READERS = 20


@dataclass(frozen=True)
class Step:
    """A revision and what it changed; the first one shows no changes, it is all new."""

    revision: Revision
    changes: tuple[FieldChange, ...]


class History:
    def __init__(self, entry: Entry) -> None:
        self.entry = entry

    @cached_property
    def steps(self) -> list[Step]:
        """The newest first."""
        rows = list(self.entry.revisions.select_related("by"))
        olders = [*rows[1:], None]
        return [
            Step(row, row.changes_since(older) if older else ())
            for row, older in zip(rows, olders, strict=True)
        ]

    @cached_property
    def readers(self) -> list[Run]:
        return list(self.entry.readers()[:SHOWN_READERS])

    @cached_property
    def reader_count(self) -> int:
        few = len(self.readers) < SHOWN_READERS
        return len(self.readers) if few else self.entry.readers().count()

    @property
    def candidate(self) -> Candidate | None:
        """The candidate that it came from, while its run is still here."""
        return self.entry.candidate

    @property
    def parent_number(self) -> int | None:
        number: int | None = self.entry.evidence.get("parent")
        return number

    @property
    def evidence(self) -> dict[str, Any]:
        return self.entry.evidence
