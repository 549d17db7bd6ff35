"""What a barrier gets in a whole run, against what it was set up for.

Owns the counting alone. A count decides nothing by itself: it names the cause once a search has
found that something goes wrong.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from runner.analysis.protocol_events import Barrier, Event, Kind, Program
from runner.analysis.protocol_search import contribution

ARRIVING = frozenset({Kind.expect, Kind.arrive, Kind.tc_commit, Kind.cp_arrive})


@dataclass
class Tally:
    """What one barrier gets in a whole run; a round is one trip through its busiest line."""

    init: Event | None
    arrivals: int
    rounds: int
    bytes_expected: int
    bytes_copied: int
    expect: Event | None
    copy: Event | None
    lines: tuple[int, ...]
    processes: frozenset[int]

    @property
    def expected(self) -> int:
        return self.rounds * (self.init.amount if self.init else 0)

    def words(self, barrier: Barrier) -> str:
        count = self.init.amount if self.init else 0
        lines = ", ".join(str(line) for line in self.lines)
        got = self.arrivals / self.rounds
        return (
            f"{barrier.name} counts to {count} and gets {got:g} arrival{'s' * (got != 1)} a round"
            f" (line{'s' * (len(self.lines) > 1)} {lines})"
        )


def tally_of(program: Program, barrier: Barrier) -> Tally:
    events = [event for event in program.events() if event.barrier == barrier]
    arriving = [event for event in events if event.kind in ARRIVING]
    sites = Counter((event.process, event.line, event.kind) for event in arriving)
    expects = [event for event in events if event.kind is Kind.expect]
    copies = [event for event in events if event.kind is Kind.tma_load]
    return Tally(
        next((event for event in events if event.kind is Kind.init), None),
        sum(contribution(event)[0] for event in arriving if event.counted),
        max(sites.values(), default=1),
        sum(event.amount for event in expects),
        sum(event.amount for event in copies),
        expects[0] if expects else None,
        copies[0] if copies else None,
        tuple(sorted({event.line for event in arriving})),
        frozenset(event.process for event in arriving),
    )
