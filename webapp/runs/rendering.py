"""Turns rows of the log into the HTML of a trace; page, fragment and socket all come here.

One template per event type, `runs/events/<type>.html`. What a step shows depends on its body and on
what stood before it in the log, neither of which ever changes: so the HTML is cached.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Subquery
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.dateparse import parse_datetime

from runner.events import CandidatePayload, EventType, ToolResultPayload
from runner.events import Event as LogEvent
from runner.wire import WireError, from_json
from webapp.review.diff import ShortDiff, short_diff
from webapp.runs import store
from webapp.runs.models import Candidate, Event

CACHED_STEPS = 4096
SOURCE_BYTES = 256 * 1024  # of a source that the trace compares; a longer one has its own page
DIFF_LINES = 10


@dataclass(frozen=True)
class Before:
    """What a row needs of the log before it.

    A candidate: its parent's source and the last message. An answer: the tool that was called, and
    the step that called it.
    """

    parent_sha256: str = ""
    said: str = ""
    tool: str = ""
    called_at: int = 0


def render_event(event: Event) -> str:
    """The HTML of one row of the trace."""
    return render_events([event])[0]


def render_events(events: Sequence[Event]) -> list[str]:
    """The same for many rows, with at most three queries however many there are."""
    before = _before([event for event in events if event.type == EventType.candidate])
    before |= _calls([event for event in events if event.type == EventType.tool_result])
    unknown = Before()
    return [
        _html(event.run_id, event.body, before.get((event.run_id, event.seq), unknown))
        for event in events
    ]


def _before(candidates: Sequence[Event]) -> dict[tuple[int, int], Before]:
    """By (run, seq) of each candidate event."""
    if not candidates:
        return {}
    runs, seqs = {event.run_id for event in candidates}, [event.seq for event in candidates]
    messages = Event.objects.filter(type=EventType.message.value, run__in=runs)
    said = {
        (row.run_id, row.seq + 1): json.loads(row.body)["payload"].get("text", "")
        for row in messages.filter(seq__in=[seq - 1 for seq in seqs])
    }
    rows = Candidate.objects.filter(run__in=runs, seq__in=seqs)
    found = rows.values_list("run_id", "seq", "parent__source_sha256")
    return {
        (run, seq): Before(parent or "", said.get((run, seq), "")) for run, seq, parent in found
    }


def _calls(answers: Sequence[Event]) -> dict[tuple[int, int], Before]:
    """By (run, seq) of each answer. Calls are made one by one: it answers the last one before."""
    if not answers:
        return {}
    earlier = Event.objects.filter(
        run=OuterRef("run"), type=EventType.tool_call.value, seq__lt=OuterRef("seq")
    )
    rows = Event.objects.filter(pk__in=[event.pk for event in answers])
    bodies = rows.annotate(call=Subquery(earlier.order_by("-seq").values("body")[:1]))
    found = {}
    for run, seq, answer, body in bodies.values_list("run_id", "seq", "body", "call"):
        call = json.loads(body) if body else None
        if call and call["payload"]["call"] == json.loads(answer)["payload"]["call"]:
            found[run, seq] = Before(tool=call["payload"]["tool"], called_at=call["seq"])
    return found


@functools.lru_cache(maxsize=CACHED_STEPS)
def _html(run_id: int, body: str, before: Before) -> str:
    event = from_json(LogEvent, json.loads(body))
    context: dict[str, Any] = {
        "run_id": run_id,
        "event": event,
        "at": parse_datetime(event.at),
        "whole_url": reverse("run-event", args=[run_id, event.seq]),
    }
    try:
        payload = context["payload"] = event.decoded
    except WireError as error:  # of a newer version, say; it must not hide its neighbours
        return render_to_string("runs/events/unreadable.html", context | {"error": error})
    if isinstance(payload, CandidatePayload):
        context["said"] = payload.idea in before.said
        context["short"] = _diff(before.parent_sha256, payload.source_sha256)
    elif isinstance(payload, ToolResultPayload):
        context["before"] = before
    return render_to_string(f"runs/events/{event.type}.html", context)


def _diff(parent_sha256: str, sha256: str) -> ShortDiff | None:
    """None where there is no parent, or a source is missing or too long to compare here."""
    if not parent_sha256:
        return None
    try:
        (old, old_size), (new, new_size) = (
            store.read_text(name, SOURCE_BYTES) for name in (parent_sha256, sha256)
        )
    except store.MissingArtifact:
        return None
    if max(old_size, new_size) > SOURCE_BYTES:
        return None
    # No language, so no syntax colours: 3 ms instead of 160 for a kernel of 250 lines, and a page
    # may show 200 of them. The compare page has colours.
    return short_diff(old, new, DIFF_LINES)
