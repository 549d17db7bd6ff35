"""The knowledge base as agents see it: implements runner.loop.Library on the entries.

Published entries alone: a draft is nobody's claim yet, and what is retired does not hold. It ranks
and puts into words; what an entry says is its author's business, and whether it holds the reader's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Case, IntegerField, Q, Value, When

from runner import units
from runner.loop import Entry as Listed
from webapp.knowledge.models import Entry
from webapp.knowledge.staleness import doubts
from webapp.runs import store

WORDS = 12  # of a query that are looked for
WORD_CHARACTERS = 60
RANKED = 300  # matching entries that are ranked; the nearest problems and latest come first
# Where a word occurs, and what that is worth.
WEIGHTS = {
    "title": 4,
    "mechanism": 2,
    "kernel": 2,
    "problem": 2,
    "language": 2,
    "device_scope": 1,
    "versions_scope": 1,
    "shapes_scope": 1,
    "not_tested": 1,
    "counter_examples": 1,
}
SAME_PROBLEM, SAME_DEVICE, SAME_LANGUAGE, IN_DOUBT = 8, 4, 2, -3


@dataclass(frozen=True)
class DatabaseLibrary:
    """What is near the problem, the kind of device and the language of a run comes first."""

    problem: str
    device_kind: str
    language: str

    def search(self, query: str, limit: int) -> tuple[Listed, ...]:
        """Entries that hold any word of the query, those that hold more of them first.

        An empty query lists the nearest ones.
        """
        words = [word[:WORD_CHARACTERS] for word in query.lower().split()[:WORDS]]
        found = [(entry, doubts(entry)) for entry in self._matching(words)]
        found.sort(key=lambda each: (-self._rank(each[0], each[1], words), -each[0].pk))
        return tuple(_listed(entry, why) for entry, why in found[:limit])

    def read(self, slug: str) -> str | None:
        """The whole entry as text, with its evidence and the source that was measured."""
        if not (slug.isascii() and slug.isdigit() and len(slug) <= 15):
            return None
        entry = Entry.objects.filter(pk=int(slug), status=Entry.Status.PUBLISHED).first()
        return None if entry is None else "\n\n".join(_sections(entry))

    def _matching(self, words: list[str]) -> list[Entry]:
        anywhere = Q()
        for word in words:
            for name in WEIGHTS:
                anywhere |= Q(**{f"{name}__icontains": word})
        near = Case(
            When(problem=self.problem, then=Value(0)),
            default=Value(1),
            output_field=IntegerField(),
        )
        entries = Entry.objects.filter(anywhere, status=Entry.Status.PUBLISHED)
        return list(entries.order_by(near, "-updated_at", "-pk")[:RANKED])

    def _rank(self, entry: Entry, why: tuple[str, ...], words: list[str]) -> float:
        """The sum of what speaks for an entry; its speedup decides between equals."""
        rank = min(entry.speedup or 0.0, 100.0) / 1000
        rank += SAME_PROBLEM * (entry.problem == self.problem)
        rank += SAME_DEVICE * (entry.device_kind == self.device_kind)
        rank += SAME_LANGUAGE * (entry.language == self.language)
        rank += IN_DOUBT * bool(why)
        for word in words:
            places = (
                weight for name, weight in WEIGHTS.items() if word in getattr(entry, name).lower()
            )
            rank += 3 * max(places, default=0)
        return rank


def _listed(entry: Entry, why: tuple[str, ...]) -> Listed:
    about = f"{entry.problem}, {entry.language} on {entry.device_kind}"
    if entry.speedup is not None:
        about += f", {units.speedup(entry.speedup)}"
    caution = f"may not hold any more: {'; '.join(why)}" if why else ""
    return Listed(str(entry.pk), about, entry.title, entry.device_scope, caution)


def _sections(entry: Entry) -> list[str]:
    """Claim and scope first, evidence and source last."""
    why = doubts(entry)
    parts = [entry.title]
    if why:
        parts.append(f"May not hold any more: {'; '.join(why)}.")
    parts.append(f"Problem {entry.problem}, language {entry.language}.")
    for name, label in Entry.LABELS.items():
        text = getattr(entry, name).strip()
        if name != "title" and text:
            parts.append(f"## {label.capitalize()}\n\n{text}")
    if entry.kernel:
        values = ", ".join(f"{name} = {value}" for name, value in entry.constants.items())
        parts.append(f"## Kernel\n\nzoo kernel {entry.kernel}{f' with {values}' if values else ''}")
    parts.append(f"## Evidence\n\n{_evidence(entry.evidence)}")
    if source := _source(entry.evidence.get("source_sha256", "")):
        parts.append(f"## The source that was measured\n\n{source}")
    return parts


def _evidence(kept: dict[str, Any]) -> str:
    """The figures of the measurement, as they were frozen."""
    if not kept.get("cases"):
        return "No measurement is kept with it."
    device = kept.get("device", {}).get("model", "a device not named")
    when = str(kept.get("measured_at") or "at a time not recorded")[:10]
    lines = [f"Measured on {device}, {when}."]
    for case in kept["cases"]:
        low, high = case["ci95"]
        ratio = f"{units.speedup(case['speedup'])} over {case['baseline']}"
        interval = f"95% {units.interval((low, high))}"
        lines.append(f"- {case['case']}: {ratio} ({interval}), {case['outcome']}")
    return "\n".join(lines)


def _source(sha256: str) -> str:
    """Empty where the store has it no more."""
    try:
        return store.read(sha256).decode("utf-8", "replace") if sha256 else ""
    except store.MissingArtifact:
        return ""
