"""Entry and Revision: what was learned, the evidence it rests on, and every change made to it.

An entry is plain text a person answers for, plus the constants an agent may start from. The
evidence is a frozen copy of what was measured, so that it outlives the candidate it points to.
What an entry says is changed only through its methods: each writes a revision. This module does
not decide what the text of a new entry is; that is `drafting`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models, transaction
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from runner.spec import Hint
from webapp.review.diff import ShortDiff, short_diff
from webapp.runs.models import Candidate, Run

MAX_DIFF_LINES = 60  # of one field in the history
MAX_CLAIM = 400
MAX_HINTS = 5  # more would spend a run's budget on old news before it looks for anything new


class EntryError(ValueError):
    """A change is refused: `field` names what is wrong, `remedy` says what would work."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.field = field


class EntryQuerySet(models.QuerySet["Entry"]):
    def for_list(self, search: str = "", problem: str = "", status: str = "") -> EntryQuerySet:
        """Every word of `search` must occur in the claim, the mechanism or the scope.

        Without a `status`, what is retired is left out; `all` leaves out nothing.
        """
        entries = self.select_related("created_by")
        for word in search.split():
            entries = entries.filter(
                Q(title__icontains=word)
                | Q(mechanism__icontains=word)
                | Q(problem__icontains=word)
                | Q(device_scope__icontains=word)
                | Q(versions_scope__icontains=word)
                | Q(shapes_scope__icontains=word)
                | Q(counter_examples__icontains=word)
            )
        if problem:
            entries = entries.filter(problem=problem)
        if status == "all":
            return entries.order_by("-updated_at", "-pk")
        shown = [status] if status else [Entry.Status.DRAFT, Entry.Status.PUBLISHED]
        entries = entries.filter(status__in=shown)
        return entries.order_by("-updated_at", "-pk")

    def hints_for(self, problem: str, device_kind: str) -> tuple[Hint, ...]:
        """What a new run is told: published entries that name a kernel, the fastest first.

        One that stays behind the baseline counts too: it may still be the best start there is.
        """
        entries = (
            self.filter(problem=problem, device_kind=device_kind, status=Entry.Status.PUBLISHED)
            .exclude(kernel="")
            .order_by(models.F("speedup").desc(nulls_last=True), "pk")[:MAX_HINTS]
        )
        return tuple(Hint(str(e.pk), e.title, e.kernel, e.constants) for e in entries)


class Entry(models.Model):
    """One claim with its mechanism, scope and evidence. `speedup` repeats the evidence's number."""

    class Status(models.TextChoices):
        DRAFT = "draft"
        PUBLISHED = "published"
        RETIRED = "retired"

    title = models.CharField("claim", max_length=MAX_CLAIM)
    mechanism = models.TextField(blank=True, default="")
    problem = models.CharField(max_length=64, db_index=True)
    language = models.CharField(max_length=16)
    device_kind = models.CharField(max_length=16)
    device_scope = models.TextField(blank=True, default="")
    versions_scope = models.TextField(blank=True, default="")
    shapes_scope = models.TextField(blank=True, default="")
    not_tested = models.TextField(blank=True, default="")
    counter_examples = models.TextField(blank=True, default="")
    kernel = models.CharField(max_length=64, blank=True, default="")
    constants = models.JSONField(default=dict, blank=True)
    candidate = models.ForeignKey(
        Candidate, null=True, on_delete=models.SET_NULL, related_name="entries"
    )
    evidence = models.JSONField(default=dict)
    speedup = models.FloatField(null=True)
    status = models.CharField(max_length=16, choices=Status, default=Status.DRAFT, db_index=True)
    created_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField(default=timezone.now)
    updated_at = models.DateTimeField(default=timezone.now)
    published_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    published_at = models.DateTimeField(null=True)

    LABELS = {
        "title": "claim",
        "mechanism": "mechanism",
        "device_scope": "device",
        "versions_scope": "versions",
        "shapes_scope": "shapes and types",
        "not_tested": "not tested",
        "counter_examples": "counter-examples",
    }
    REQUIRED = {
        "title": "Say in one sentence what was found and where it was measured.",
        "device_scope": "Name the device, or the family of devices, that it was measured on.",
        "shapes_scope": "Name the shapes and data types that were tested.",
    }

    objects = EntryQuerySet.as_manager()

    class Meta:
        verbose_name_plural = "entries"

    def __str__(self) -> str:
        return f"entry {self.pk}"

    def get_absolute_url(self) -> str:
        return reverse("entry", args=[self.pk])

    def require_texts(self) -> None:
        """A claim without its scope cannot be checked; raises EntryError naming the field."""
        for name, remedy in self.REQUIRED.items():
            if not getattr(self, name).strip():
                raise EntryError(name, f"The {self.LABELS[name]} is empty.", remedy)

    @property
    def last_revision(self) -> int:
        return self.revisions.aggregate(last=models.Max("number"))["last"] or 0

    @transaction.atomic
    def revise(self, texts: dict[str, str], seen: int, by: User, note: str) -> Revision:
        """Change what the entry says. `seen` is the revision that the writer had before them.

        Raises EntryError when somebody else changed the entry since, or a required text is empty.
        """
        self._refresh_locked()
        if self.last_revision != seen:
            raise EntryError(
                "",
                f"Somebody saved revision {self.last_revision} while you were editing {seen}.",
                "Your text is kept below: look at the history, then save again.",
            )
        for name, text in texts.items():
            setattr(self, name, text)
        self.require_texts()
        return self._record(by, note)

    @transaction.atomic
    def move_to(self, status: Entry.Status, by: User) -> bool:
        """Change the status and record who did; False if it already stood there."""
        self._refresh_locked()
        if self.status == status:
            return False
        self.status = status
        if status == Entry.Status.PUBLISHED:
            self.require_texts()
            self.published_by, self.published_at = by, timezone.now()
        self._record(by, "back to draft" if status == Entry.Status.DRAFT else status.value)
        return True

    @transaction.atomic
    def save_first(self, by: User, note: str) -> Revision:
        """Save a new entry, with its first revision."""
        self.require_texts()
        self.created_by = by
        return self._record(by, note)

    def _refresh_locked(self) -> None:
        """What the row holds now, with other writers kept out until the transaction ends."""
        self.refresh_from_db(from_queryset=Entry.objects.select_for_update())

    def _record(self, by: User, note: str) -> Revision:
        """The entry as it now stands, together with the revision that says who and why."""
        self.updated_at = timezone.now()
        self.save()
        number = self.last_revision + 1
        return self.revisions.create(number=number, snapshot=self.snapshot(), by=by, note=note)

    def snapshot(self) -> dict[str, Any]:
        """What a revision keeps: everything that the entry tells a person or an agent."""
        facts = ("problem", "language", "device_kind", "kernel", "constants", "status")
        return {name: getattr(self, name) for name in (*self.LABELS, *facts)}

    def readers(self) -> models.QuerySet[Run]:
        """The runs of this instance that were launched with this entry among their hints.

        An imported run names the entries of the instance that it came from.
        """
        hint = f'"entry":"{self.pk}"'
        runs = Run.objects.for_dashboard().filter(problem=self.problem, imported=False)
        return runs.filter(spec_text__contains=hint)


@dataclass(frozen=True)
class FieldChange:
    """One field of an entry before and after a change."""

    field: str
    before: str
    after: str

    @property
    def label(self) -> str:
        return Entry.LABELS.get(self.field, self.field.replace("_", " "))

    @property
    def diff(self) -> ShortDiff:
        return short_diff(self.before, self.after, MAX_DIFF_LINES)


class Revision(models.Model):
    """The entry as it stood after one change. Rows are never edited."""

    entry = models.ForeignKey(Entry, on_delete=models.CASCADE, related_name="revisions")
    number = models.PositiveIntegerField()
    snapshot = models.JSONField()
    by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    at = models.DateTimeField(default=timezone.now)
    note = models.CharField(max_length=200, blank=True, default="")

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["entry", "number"], name="one_revision_per_number")
        ]
        ordering = ["-number"]

    def __str__(self) -> str:
        return f"revision {self.number} of entry {self.entry_id}"

    def changes_since(self, older: Revision | None) -> tuple[FieldChange, ...]:
        """The fields that differ from the revision before it; all filled ones for the first."""
        before = older.snapshot if older else {}
        names = dict.fromkeys([*self.snapshot, *before])
        pairs = [(name, _text(before.get(name)), _text(self.snapshot.get(name))) for name in names]
        return tuple(FieldChange(*pair) for pair in pairs if pair[1] != pair[2])


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key} = {item}" for key, item in sorted(value.items()))
    return "" if value is None else str(value)
