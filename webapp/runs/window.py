"""The part of a log that a page shows: which steps, filtered how, and what lies before and after.

A window is at most `PAGE` steps, however long the log; its cost does not grow with the log.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import QueryDict

from runner.events import EventType
from webapp.runs.models import Event, Run
from webapp.runs.rendering import render_events

PAGE = 200

GROUPS: dict[str, tuple[EventType, ...]] = {
    "messages": (EventType.message, EventType.note),
    "candidates": (EventType.candidate,),
    "evaluations": (EventType.evaluation, EventType.analysis, EventType.profile),
    "tools": (EventType.tool_call, EventType.tool_result),
    "lifecycle": (EventType.run, EventType.control, EventType.budget, EventType.harness_error),
}


@dataclass(frozen=True)
class TraceFilter:
    """`show` names groups of GROUPS, all of them when empty; `text` occurs in the step's body."""

    show: tuple[str, ...] = ()
    text: str = ""

    @classmethod
    def from_query(cls, query: QueryDict) -> TraceFilter:
        """Unknown groups are ignored, so that an old link still opens."""
        asked = query.get("show", "").split(",")
        show = tuple(name for name in GROUPS if name in asked)
        return cls(() if len(show) == len(GROUPS) else show, query.get("q", "").strip()[:200])

    @property
    def types(self) -> list[str]:
        return [kind.value for name in self.show or GROUPS for kind in GROUPS[name]]

    def apply(self, events: QuerySet[Event]) -> QuerySet[Event]:
        if self.show:
            events = events.filter(type__in=self.types)
        if self.text:  # as the text stands in canonical JSON, quotes and newlines escaped
            events = events.filter(body__icontains=json.dumps(self.text, ensure_ascii=False)[1:-1])
        return events

    def query(self, **more: object) -> str:
        """`?show=…&q=…`, and what else is asked for; empty when nothing is."""
        pairs = {"show": ",".join(self.show), "q": self.text, **more}
        text = urlencode({key: value for key, value in pairs.items() if value not in ("", None)})
        return f"?{text}" if text else ""

    @property
    def toggles(self) -> list[Toggle]:
        """One chip per group: where pressing it leads."""
        on = self.show or tuple(GROUPS)
        toggles = []
        for name in GROUPS:
            # From "all", the first press means "only this"; from some, it adds or takes away.
            kept = (
                (name,) if not self.show else tuple(g for g in GROUPS if (g in on) != (g == name))
            )
            show = kept if len(kept) < len(GROUPS) else ()
            toggles.append(Toggle(name, name in on, TraceFilter(show, self.text).query() or "?"))
        return toggles


@dataclass(frozen=True)
class Toggle:
    name: str
    on: bool
    query: str


@dataclass(frozen=True)
class Window:
    """Consecutive matching steps. `at_tail` is false where later matching steps exist."""

    events: tuple[Event, ...]
    filter: TraceFilter
    earlier: bool
    at_tail: bool

    @classmethod
    def tail(cls, run: Run, chosen: TraceFilter) -> Window:
        return cls._before(chosen.apply(run.events.all()), chosen, at_tail=True)

    @classmethod
    def before(cls, run: Run, seq: int, chosen: TraceFilter) -> Window:
        return cls._before(chosen.apply(run.events.filter(seq__lt=seq)), chosen, at_tail=False)

    @classmethod
    def _before(cls, events: QuerySet[Event], chosen: TraceFilter, at_tail: bool) -> Window:
        found = list(events.order_by("-seq")[: PAGE + 1])
        return cls(tuple(reversed(found[:PAGE])), chosen, len(found) > PAGE, at_tail)

    @classmethod
    def around(cls, run: Run, seq: int, chosen: TraceFilter) -> Window:
        """From half a page before `seq`; the tail when that reaches the end anyway."""
        if seq > run.last_seq - PAGE // 2:
            return cls.tail(run, chosen)
        start = seq - PAGE // 2
        found = cls.after(run, start - 1, chosen)
        return cls(found.events, chosen, start > 1, found.at_tail)

    @classmethod
    def after(cls, run: Run, seq: int, chosen: TraceFilter) -> Window:
        events = chosen.apply(run.events.filter(seq__gt=seq))
        found = list(events.order_by("seq")[: PAGE + 1])
        return cls(tuple(found[:PAGE]), chosen, seq > 0, len(found) <= PAGE)

    @cached_property
    def rows(self) -> list[str]:
        """The HTML of each step."""
        return render_events(self.events)

    @property
    def first_seq(self) -> int:
        return self.events[0].seq if self.events else 0

    @property
    def last_seq(self) -> int:
        return self.events[-1].seq if self.events else 0

    @property
    def earlier_query(self) -> str:
        return self.filter.query(before=self.first_seq)

    @property
    def later_query(self) -> str:
        return self.filter.query(after=self.last_seq)
