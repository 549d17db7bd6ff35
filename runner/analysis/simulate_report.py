"""What the simulating child writes down of a candidate; travels as JSON from the sandbox.

The child is not trusted: the parent checks types and sizes, and a report without findings proves
nothing. Owns no judgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from runner.analysis.memory_sightings import NoteKind, Sighting


class TroubleKind(StrEnum):
    """Why a simulation ended early, or what was wrong with the answer's form."""

    load = "load"
    run = "run"
    answer = "answer"
    unsupported = "unsupported"
    waiting = "waiting"
    limit = "limit"


@dataclass(frozen=True)
class Trouble:
    """`line` is the innermost one of the candidate's file, 0 where there is none."""

    kind: TroubleKind
    message: str
    line: int


@dataclass(frozen=True)
class Launched:
    """One launch: how many of its programs there are, and how many were run."""

    kernel: str
    grid: tuple[int, int, int]
    programs: int
    simulated: int

    def __post_init__(self) -> None:
        if min(self.grid) < 1:
            raise ValueError("a launch needs a program")


@dataclass(frozen=True)
class Note:
    """What the kernel says of itself and does not hold, and how often it did not."""

    kind: NoteKind
    text: str
    line: int
    times: int


@dataclass(frozen=True)
class Report:
    """`undefined_lines` are loads whose masked-off lanes hold whatever they happen to hold;
    `stored_at` is, for each output, the line of the last store to it; `duplicates` counts elements
    that several programs wrote with equal values.
    """

    trouble: Trouble | None
    launches: tuple[Launched, ...]
    sightings: tuple[Sighting, ...]
    notes: tuple[Note, ...]
    tuned: tuple[str, ...]
    assumed: tuple[str, ...]
    undefined_lines: tuple[int, ...]
    stored_at: tuple[int, ...]
    duplicates: int
    seconds: float
