"""What was found of candidates without a device, as the log has it.

Reads events, in one query for any number of candidates, and writes nothing. The words are in
`findings`, the numbers in `resources`, the compiled texts in `levels`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Q

from runner.analysis.stored import ARTIFACT
from runner.events import AnalysisPayload, EventType
from runner.events import Event as LogEvent
from runner.wire import WireError, from_json
from webapp.review.findings import Count, ShownFinding, counted, gravest_first, read_findings
from webapp.review.resources import Kernel, read_kernels
from webapp.runs.models import Candidate, Event

ANALYZE, SIMULATE = "analyze", "simulate"


@dataclass(frozen=True)
class Analysed:
    """One analysis event; `levels_sha256` is empty where it kept no levels."""

    seq: int
    payload: AnalysisPayload
    levels_sha256: str = ""
    levels_size: int = 0

    @property
    def tool(self) -> str:
        return self.payload.tool

    @property
    def case(self) -> str:
        """The case it is about; a simulation that was not told one has chosen it."""
        chosen = self.payload.resources.get("case")
        return self.payload.case or (chosen if isinstance(chosen, str) else "")

    @property
    def about(self) -> tuple[str, str]:
        """Target and case: only numbers that agree in both may be held against each other."""
        return self.payload.target, self.case

    @cached_property
    def findings(self) -> tuple[ShownFinding, ...]:
        return read_findings(self.payload.findings)

    @property
    def reason(self) -> str:
        """Why it ended as it did, unless a finding says just that."""
        told = any(finding.message == self.payload.reason for finding in self.findings)
        return "" if told or self.payload.verdict == "review" else self.payload.reason

    @cached_property
    def counts(self) -> tuple[Count, ...]:
        return counted(self.findings)

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        return read_kernels(self.payload.resources)


class Analyses:
    """All of one candidate, in the order of the log."""

    def __init__(self, rows: Sequence[Analysed], asked: int = 0) -> None:
        self.rows = tuple(rows)
        self.asked = asked

    def _of(self, tool: str) -> list[Analysed]:
        return [row for row in self.rows if row.tool == tool]

    @cached_property
    def analysis(self) -> Analysed | None:
        """The one that was asked for by its step, else the latest."""
        rows = self._of(ANALYZE)
        asked = [row for row in rows if row.seq == self.asked]
        return (asked or rows)[-1] if rows else None

    @cached_property
    def simulation(self) -> Analysed | None:
        rows = self._of(SIMULATE)
        asked = [row for row in rows if row.seq == self.asked]
        return (asked or rows)[-1] if rows else None

    @property
    def shown(self) -> list[Analysed]:
        return [row for row in (self.analysis, self.simulation) if row]

    @property
    def others(self) -> list[Analysed]:
        """What else was analysed or simulated: other targets, other cases."""
        return [row for row in self.rows if row not in self.shown]

    @cached_property
    def by_line(self) -> dict[int, list[ShownFinding]]:
        """The findings of what is shown, by the source line that they name."""
        lines: dict[int, list[ShownFinding]] = {}
        for finding in gravest_first(each for row in self.shown for each in row.findings):
            if finding.line is not None:
                lines.setdefault(finding.line, []).append(finding)
        return lines


def analyses_of(candidates: Sequence[Candidate]) -> dict[int, list[Analysed]]:
    """By candidate row, in the order of the log; one query.

    The number is looked for in the canonical text, where it is the payload's first key, so that a
    run's other analyses are not even read.
    """
    wanted = Q(pk__in=[])
    for each in candidates:
        wanted |= Q(run_id=each.run_id, body__contains=f'"payload":{{"candidate":{each.number},')
    found: dict[int, list[Analysed]] = {each.pk: [] for each in candidates}
    rows = {(each.run_id, each.number): found[each.pk] for each in candidates}
    events = Event.objects.filter(wanted, type=EventType.analysis.value).order_by("run_id", "seq")
    for event in events:
        analysed = _analysed(event)
        if analysed and (row := rows.get((event.run_id, analysed.payload.candidate))) is not None:
            row.append(analysed)
    return found


def _analysed(event: Event) -> Analysed | None:
    """None for what another version wrote: the trace shows it as unreadable."""
    try:
        log = from_json(LogEvent, json.loads(event.body))
        payload = log.decoded
    except WireError:
        return None
    levels = log.artifact(ARTIFACT)
    if levels is None:
        return Analysed(event.seq, payload)
    return Analysed(event.seq, payload, levels.sha256, levels.size)
