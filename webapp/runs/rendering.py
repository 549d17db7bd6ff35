"""Turns rows of the log into the HTML of a trace; page, fragment and socket all come here.

One template per event type, `runs/events/<type>.html`. What an event shows depends on its body and,
for a candidate, on its parent's source, neither of which ever changes: so the HTML is cached.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence

from django.template.loader import render_to_string
from django.utils.dateparse import parse_datetime

from runner.events import Event as LogEvent
from runner.events import EventType
from runner.wire import from_json
from webapp.runs.models import Candidate, Event


def render_event(event: Event) -> str:
    """The HTML of one row of the trace."""
    return render_events([event])[0]


def render_events(events: Sequence[Event]) -> list[str]:
    """The same for many rows, with at most one query however many there are."""
    parents = _parent_sources([event for event in events if event.type == EventType.candidate])
    return [_html(event.run_id, event.body, parents.get((event.run_id, event.seq))) for event in events]


def _parent_sources(events: Sequence[Event]) -> dict[tuple[int, int], str]:
    """(run, seq) of each candidate event → digest of its parent's source, where it has one."""
    if not events:
        return {}
    rows = Candidate.objects.filter(
        run__in={event.run_id for event in events}, seq__in=[event.seq for event in events]
    )
    found = rows.values_list("run_id", "seq", "parent__source_sha256")
    return {(run, seq): sha256 for run, seq, sha256 in found if sha256}


@functools.lru_cache(maxsize=2048)
def _html(run_id: int, body: str, parent_sha256: str | None) -> str:
    event = from_json(LogEvent, json.loads(body))
    context = {
        "run_id": run_id,
        "event": event,
        "at": parse_datetime(event.at),
        "payload": event.decoded,
        "parent_sha256": parent_sha256,
    }
    return render_to_string(f"runs/events/{event.type}.html", context)
