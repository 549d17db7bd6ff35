"""What was seen to go wrong in memory, gathered: one entry per kind, line and tensor.

Owns counting and the first example of each; what is wrong, others decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from runner.analysis.memory_allocation import Allocation

MAX_SIGHTINGS = 64  # kinds at lines; a candidate cannot make the report longer
Program = tuple[int, ...]


class SightingKind(StrEnum):
    """What can be seen to go wrong. The set is closed: a report that names another is forged."""

    out_of_bounds_read = "out_of_bounds_read"
    out_of_bounds_write = "out_of_bounds_write"
    uninitialised_read = "uninitialised_read"
    write_race = "write_race"
    lane_race = "lane_race"
    read_write_race = "read_write_race"
    input_write = "input_write"
    misaligned = "misaligned"


class NoteKind(StrEnum):
    """What a kernel says of itself: an assertion is checked on a device in debug mode alone, an
    assumption is relied upon, a hint only where it makes an access wider.
    """

    assertion = "assertion"
    assumption = "assumption"
    hint = "hint"


@dataclass
class Sighting:
    """One kind of error at one line on one tensor: how often, and its first example.

    `index` is that of an element, `value` what was read or written there; `other_line` and
    `other_program` are those of the access that it is in conflict with.
    """

    kind: SightingKind
    kernel: str
    line: int
    tensor: str
    index: str
    program: Program
    value: str = ""
    other_line: int = 0
    other_program: Program = ()
    lanes: int = 0
    programs: int = 0


@dataclass
class Sightings:
    """All of one run; `kernel` and `indices` are those of the launch at hand."""

    kernel: str = ""
    indices: list[Program] = field(default_factory=lambda: [()])
    found: dict[tuple[str, int, str, str], Sighting] = field(default_factory=dict)
    _programs: dict[tuple[str, int, str, str], set[int]] = field(default_factory=dict)

    def add(
        self,
        kind: str,
        place: tuple[Allocation | None, int],
        line: int,
        program: int,
        lanes: int,
        value: str = "",
        other: tuple[int, int] | None = None,
    ) -> None:
        """`place` is an allocation and a byte offset, or None and an address; `program` and the
        second of `other` are numbers in the launch, the first of `other` is a line.
        """
        known, offset = place
        tensor = known.name if known else ""
        key = (kind, line, tensor, self.kernel)
        seen = self.found.get(key)
        if seen is None:
            if len(self.found) >= MAX_SIGHTINGS:
                return
            index = known.view.words(offset) if known else hex(offset)
            seen = Sighting(
                SightingKind(kind), self.kernel, line, tensor, index, self.indices[program], value
            )
            if other is not None:
                seen.other_line, seen.other_program = other[0], self.indices[other[1]]
            self.found[key], self._programs[key] = seen, set()
        seen.lanes += int(lanes)
        self._programs[key].add(program)
        seen.programs = len(self._programs[key])

    def add_on_host(self, kind: str, tensor: str, index: str, line: int, elements: int) -> None:
        """What the candidate's own torch code did, outside any kernel."""
        seen = Sighting(SightingKind(kind), "", line, tensor, index, ())
        seen = self.found.setdefault((kind, line, tensor, ""), seen)
        seen.lanes += elements
