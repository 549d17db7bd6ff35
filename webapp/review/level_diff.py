"""Compares one level of two kernels: what the compiler made of each line of the source.

Lines are grouped by the source line that they are from, and the groups of source lines that became
one another are held against each other, so that a scheduler's order is no difference. Nor are
numbers of values and registers: what is compared is `dialects`' key of a line, what is shown the
line itself. Inputs are untrusted, so the work is bounded, and `notes` says where that shows.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby

from runner.analysis.levels import Level
from webapp.review.dialects import DIALECTS, Dialect
from webapp.review.diff import (
    Diff,
    Region,
    Row,
    WordMatcher,
    numbered,
    rows_of,
)
from webapp.review.source import Line, plain_line
from webapp.review.subsequence import opcodes_of

MAX_LINES = 40_000  # of one level that are compared
MAX_CHARACTERS = 4_000_000
WINDOW_LINES = 96  # that are aligned at a time where all at once would take too long
MAX_CELLS = 3_000_000  # pairs of lines that are looked at to align them as well as can be
MAX_COST = 3_000  # rows of a page, a long one counted as several
COST_CHARACTERS = 200
CONTEXT = 2


@dataclass(frozen=True)
class Side:
    """A level of one kernel, and the lines of the source that it was made from."""

    level: Level
    kernel: str
    source: Sequence[Line]


@dataclass(frozen=True)
class LineGroup:
    """What one line of the source became on either side.

    `left` and `right` are that line of the source, None where the side has none. `count` is how
    many rows there are; `rows` has fewer where the page has no room for them.
    """

    left: Line | None
    right: Line | None
    rows: tuple[Row, ...]
    count: int
    added: int
    removed: int

    @property
    def changed(self) -> bool:
        return bool(self.added or self.removed)

    @property
    def hidden(self) -> int:
        return self.count - len(self.rows)

    @cached_property
    def regions(self) -> tuple[Region, ...]:
        return Diff(self.rows).regions(CONTEXT)

    def within(self, cost: int) -> LineGroup:
        """As many rows as that cost allows."""
        room, kept = cost, 0
        for row in self.rows:
            room -= _cost(row)
            if room < 0:
                break
            kept += 1
        return replace(self, rows=self.rows[:kept])

    @property
    def cost(self) -> int:
        return sum(_cost(row) for row in self.rows)


@dataclass(frozen=True)
class Stretch:
    """Neighbouring groups that are all changed, or all the same."""

    changed: bool
    groups: tuple[LineGroup, ...]

    @property
    def rows(self) -> int:
        return sum(group.count for group in self.groups)


@dataclass(frozen=True)
class LevelDiff:
    """`followed` says whether names were; else they were not compared at all."""

    stretches: tuple[Stretch, ...]
    notes: tuple[str, ...]
    followed: bool

    def _sum(self, name: str) -> int:
        return sum(getattr(group, name) for each in self.stretches for group in each.groups)

    @property
    def added(self) -> int:
        return self._sum("added")

    @property
    def removed(self) -> int:
        return self._sum("removed")

    @cached_property
    def changes(self) -> int:
        """Blocks of changes on the page, numbered from 1."""
        groups = [group for each in self.stretches for group in each.groups]
        return max((row.change for group in groups for row in group.rows), default=0)


def diff_levels(name: str, a: Side, b: Side, pairs: Iterable[tuple[int, int]]) -> LevelDiff:
    """Compare level `name` of two kernels; `pairs` are source lines that became one another."""
    return _Comparison(DIALECTS[name], a, b, dict(pairs)).result()


# Sorts groups: the line of the right source, whether it comes after that, the line of the left one.
Place = tuple[int, int, int]
NOWHERE: Place = (1 << 60, 0, 0)


class _Comparison:
    """One comparison under way, with what is left of its bounds."""

    def __init__(self, dialect: Dialect, a: Side, b: Side, became: dict[int, int]) -> None:
        self.dialect, self.a, self.b = dialect, a, b
        self.became = became
        self.survivors = sorted(became)
        self.cells = MAX_CELLS
        self.notes: dict[str, None] = {}
        self.words = WordMatcher(dialect.words, dialect.word)
        self.exact = WordMatcher(dialect.words)
        self.bound: dict[str, set[str]] = {}
        self.free: set[str] = set()

    def result(self) -> LevelDiff:
        left, right = self._grouped(self.a, self._left_place), self._grouped(self.b, _right_place)
        places = sorted({*left, *right})
        found = [self._rows(left.get(place, []), right.get(place, [])) for place in places]
        for rows in found:
            self._bind(rows)
        groups, changes = [], 0
        for place, rows in zip(places, found, strict=True):
            checked = tuple(numbered(map(self._checked, rows), changes))
            changes = max([changes, *(row.change for row in checked)])
            groups.append(self._group(place, checked))
        notes = [*self.notes, self.words.note]
        followed = self.dialect.named is not None
        return LevelDiff(tuple(_stretches(_fitted(groups))), tuple(filter(None, notes)), followed)

    def _grouped(self, side: Side, place: Callable[[int], Place]) -> dict[Place, list[Line]]:
        """The lines that mean something, by the source line that they are from."""
        text = side.level.text[:MAX_CHARACTERS]
        lines = self.dialect.lines("\n".join(text.split("\n", MAX_LINES)[:MAX_LINES]))
        if len(text) < len(side.level.text) or len(lines) == MAX_LINES:
            self.notes[
                f"Only the first {MAX_LINES:,} lines or {MAX_CHARACTERS:,} characters of a level"
                " are compared; its candidate's page has all of it."
            ] = None
        groups: dict[Place, list[Line]] = {}
        for number, shown in enumerate(lines, 1):
            if shown:
                source = side.level.lines.get(number)
                where = NOWHERE if source is None else place(source)
                groups.setdefault(where, []).append(plain_line(number, shown))
        return groups

    def _left_place(self, line: int) -> Place:
        """Where the line stands on the right; one that is gone, after its last survivor."""
        if line in self.became:
            return self.became[line], 0, 0
        before = bisect(self.survivors, line)
        return (self.became[self.survivors[before - 1]] if before else 0), 1, line

    def _rows(self, left: list[Line], right: list[Line]) -> list[Row]:
        a = [self.dialect.key(line.text, self.a.kernel) for line in left]
        b = [self.dialect.key(line.text, self.b.kernel) for line in right]
        return list(rows_of(left, right, opcodes_of(a, b, self._window(a, b)), self.words))

    def _window(self, a: list[str], b: list[str]) -> int:
        """As much as is left to be spent allows; below that, little at a time."""
        cells = len(a) * len(b)
        if cells <= self.cells:
            self.cells -= cells
            return max(1, len(a), len(b))
        if cells > WINDOW_LINES**2:
            self.notes[
                f"Some source lines became so much that it is aligned {WINDOW_LINES} lines at a"
                " time: the differences found may be more than there are."
            ] = None
        return WINDOW_LINES

    def _bind(self, rows: list[Row]) -> None:
        """Which name of the right side each name that is defined on the left stands for.

        Only groups without a line more or less tell: in others several alignments are as good, and
        what they define may stand for anything.
        """
        certain = all(row.left and row.right for row in rows)
        for row in rows:
            mine = self.dialect.uses(row.left.text).defined if row.left else ()
            if not certain:
                self.free.update(mine)
            elif row.right:
                pairs = zip(mine, self.dialect.uses(row.right.text).defined, strict=False)
                for name, other in pairs:
                    self.bound.setdefault(name, set()).add(other)

    def _checked(self, row: Row) -> Row:
        """A line that only looks the same, for it uses other values, is a changed one."""
        if row.kind != "same" or row.left is None or row.right is None:
            return row
        a, b = self.dialect.uses(row.left.text), self.dialect.uses(row.right.text)
        for mine, other in zip(a.all, b.all, strict=False):
            if mine not in self.free and other not in self.bound.setdefault(mine, {other}):
                return Row("changed", *self.exact.mark(row.left, row.right))
        return row

    def _group(self, place: Place, rows: tuple[Row, ...]) -> LineGroup:
        number, gone, left = place
        after = _line(self.b.source, 0 if gone or place == NOWHERE else number)
        before = _line(self.a.source, left if gone else self._came_from(number))
        return LineGroup(
            left=before,
            right=after,
            rows=rows,
            count=len(rows),
            added=sum(row.kind in ("added", "changed") for row in rows),
            removed=sum(row.kind in ("removed", "changed") for row in rows),
        )

    @cached_property
    def _origins(self) -> dict[int, int]:
        return {right: left for left, right in self.became.items()}

    def _came_from(self, line: int) -> int:
        return self._origins.get(line, 0)


def _right_place(line: int) -> Place:
    return line, 0, 0


def _line(source: Sequence[Line], number: int) -> Line | None:
    return source[number - 1] if 0 < number <= len(source) else None


def _cost(row: Row) -> int:
    characters = sum(side.length for side in (row.left, row.right) if side)
    return 1 + characters // COST_CHARACTERS


def _fitted(groups: list[LineGroup]) -> list[LineGroup]:
    """What a page has room for: what changed first, then what did not."""
    room, fitted = MAX_COST, {}
    for index in sorted(range(len(groups)), key=lambda index: not groups[index].changed):
        group = groups[index]
        if group.cost > room:
            group = group.within(room if group.changed else 0)
        room -= group.cost
        fitted[index] = group
    return [fitted[index] for index in range(len(groups))]


def _stretches(groups: list[LineGroup]) -> Iterator[Stretch]:
    for changed, members in groupby(groups, key=lambda group: group.changed):
        yield Stretch(changed, tuple(members))
