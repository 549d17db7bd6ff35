"""Compares two sources line by line, and changed lines word by word.

Pure: text in, rows out. Rows, read down one side, give that side's source back exactly. Inputs are
untrusted, so the work is bounded: past a bound the result is coarser, and `notes` says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from webapp.review.source import Line, Span, read_source, split_lines

MAX_LINE_WORK = 2_000_000  # pairs of equal lines that the matcher may have to look at
MAX_WORD_WORK = 3_000_000  # characters left × right ÷ 16, summed over the lines compared by words
MAX_WORD_LINE = 2_000  # characters; a longer line is not compared by words
MAX_PAIRING = 2_500  # lines left × lines right of one block that are paired by likeness
ALIKE = 0.45  # two lines less alike than this are shown as one removed and one added
_WORDS = re.compile(r"\w+|\s+|.", re.DOTALL)

# (tag, left start, left end, right start, right end), as difflib numbers them.
Opcode = tuple[str, int, int, int, int]
Pair = tuple[int | None, int | None]  # indexes of a left and a right line; None where there is none


@dataclass(frozen=True)
class Row:
    """One line of a side-by-side view. `kind` is `same`, `changed`, `removed` or `added`.

    `change` numbers the blocks of neighbouring changes from 1, on their first row; 0 elsewhere.
    """

    kind: str
    left: Line | None
    right: Line | None
    change: int = 0


@dataclass(frozen=True)
class UnifiedLine:
    """One line of a unified view: sign ` `, `-` or `+`, the line, and its number on each side."""

    sign: str
    line: Line
    left: int | None
    right: int | None
    change: int = 0


@dataclass(frozen=True)
class Region:
    """Neighbouring rows that are shown together, or folded away because nothing changed there."""

    folded: bool
    rows: tuple[Row, ...]

    @property
    def unified(self) -> tuple[UnifiedLine, ...]:
        return tuple(_unified(self.rows))


@dataclass(frozen=True)
class Diff:
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    @property
    def added(self) -> int:
        return sum(row.kind in ("added", "changed") for row in self.rows)

    @property
    def removed(self) -> int:
        return sum(row.kind in ("removed", "changed") for row in self.rows)

    @property
    def changes(self) -> int:
        return max((row.change for row in self.rows), default=0)

    def regions(self, context: int = 4) -> tuple[Region, ...]:
        """Changes with `context` lines around them; longer unchanged stretches folded."""
        near = [False] * len(self.rows)
        for index, row in enumerate(self.rows):
            if row.kind != "same":
                span = range(max(0, index - context), min(len(near), index + context + 1))
                for neighbour in span:
                    near[neighbour] = True
        return tuple(_regions(self.rows, near))


@dataclass(frozen=True)
class ShortDiff:
    """The first changes of a diff, for a place with little room; what is left out is counted."""

    lines: tuple[UnifiedLine, ...]
    more: int
    added: int
    removed: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Alignment:
    """What is equal in two sequences; `coarse` if that was too long to find out."""

    opcodes: tuple[Opcode, ...]
    coarse: bool

    @property
    def note(self) -> str:
        if not self.coarse:
            return ""
        return "Too many repeated lines to align: the changed part is shown as one block."


def diff_sources(
    left: str,
    right: str,
    language: str = "",
    right_language: str | None = None,
    *,
    ignore_space: bool = False,
) -> Diff:
    """Compare two sources; with `ignore_space`, lines that differ in blanks alone are the same.

    `right_language` is given where the right side is written in another language than the left.
    """
    languages = language, language if right_language is None else right_language
    sides = read_source(left, languages[0]), read_source(right, languages[1])
    key: Callable[[str], str] = (lambda line: "".join(line.split())) if ignore_space else str
    a, b = ([key(line) for line in split_lines(text)] for text in (left, right))
    alignment = align(a, b)
    words = WordMatcher()
    rows = tuple(numbered(rows_of(sides[0].lines, sides[1].lines, alignment.opcodes, words)))
    notes = dict.fromkeys([side.note for side in sides] + [alignment.note, words.note])
    return Diff(rows, tuple(note for note in notes if note))


def short_diff(
    parent_source: str, source: str, limit_lines: int = 12, language: str = ""
) -> ShortDiff:
    """The changed lines with one line of context, at most `limit_lines` of them.

    Render with `{% include "review/_diff_unified.html" with short=... %}`.
    """
    diff = diff_sources(parent_source, source, language)
    regions = diff.regions(context=1)
    shown = [region for region in regions if any(row.kind != "same" for row in region.rows)]
    lines = [line for region in shown for line in region.unified]
    more = sum(line.sign != " " for line in lines[limit_lines:])
    return ShortDiff(tuple(lines[:limit_lines]), more, diff.added, diff.removed, diff.notes)


def align(a: Sequence[str], b: Sequence[str]) -> Alignment:
    """Which stretches of two sequences are equal; one coarse block where that takes too long."""
    head = _common(a, b)
    tail = _common(a[head:][::-1], b[head:][::-1])
    middle_a, middle_b = a[head : len(a) - tail], b[head : len(b) - tail]
    coarse = _work(middle_a, middle_b) > MAX_LINE_WORK
    if coarse:
        inner: list[Opcode] = [("replace", 0, len(middle_a), 0, len(middle_b))]
    else:
        inner = _opcodes(middle_a, middle_b)
    shifted = [(tag, i + head, j + head, k + head, m + head) for tag, i, j, k, m in inner]
    first: Opcode = ("equal", 0, head, 0, head)
    last: Opcode = ("equal", len(a) - tail, len(a), len(b) - tail, len(b))
    return Alignment((first, *shifted, last), coarse)


def _opcodes(a: Sequence[str], b: Sequence[str]) -> list[Opcode]:
    return [*SequenceMatcher(None, a, b, autojunk=False).get_opcodes()]


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    pairs = zip(a, b, strict=False)
    return next((i for i, (x, y) in enumerate(pairs) if x != y), min(len(a), len(b)))


def _work(a: Sequence[str], b: Sequence[str]) -> int:
    """How many pairs of equal elements there are: what the matcher's time grows with."""
    counts = Counter(b)
    return sum(counts[item] for item in a)


def rows_of(
    left: Sequence[Line], right: Sequence[Line], opcodes: Iterable[Opcode], words: WordMatcher
) -> Iterator[Row]:
    """The rows of an alignment; lines of a changed block are paired by likeness."""
    for tag, i1, i2, j1, j2 in opcodes:
        if tag == "equal":
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                yield Row("same", left[i], right[j])
            continue
        for first, second in words.pair(left[i1:i2], right[j1:j2]):
            a = None if first is None else left[i1 + first]
            b = None if second is None else right[j1 + second]
            if a is not None and b is not None:
                yield Row("changed", *words.mark(a, b))
            else:
                yield Row("added" if a is None else "removed", a, b)


def numbered(rows: Iterable[Row], before: int = 0) -> Iterator[Row]:
    """With each block of changes numbered on its first row, from `before` + 1 on."""
    change, inside = before, False
    for row in rows:
        starts = row.kind != "same" and not inside
        inside = row.kind != "same"
        change += starts
        yield replace(row, change=change) if starts else row


class WordMatcher:
    """Pairs the lines of a changed block and marks the words that differ, within one budget.

    `words` cuts a line into words; two of them are the same if their `key` is.
    """

    def __init__(
        self, words: re.Pattern[str] = _WORDS, key: Callable[[str], str] | None = None
    ) -> None:
        self.words = words
        self.key = key
        self.budget = MAX_WORD_WORK
        self.note = ""

    def _cut(self, text: str) -> list[str]:
        return self.words.findall(text)

    def _keys(self, words: list[str]) -> list[str]:
        return words if self.key is None else [self.key(word) for word in words]

    def pair(self, left: Sequence[Line], right: Sequence[Line]) -> list[Pair]:
        """Lines that became one another, in order; the rest stand alone on their side."""
        if not left or not right:
            return _alone(0, len(left), len(right))
        if len(left) * len(right) > MAX_PAIRING:
            self.note = "Large changed blocks are paired line by line, not by likeness."
            both: list[Pair] = [(i, i) for i in range(min(len(left), len(right)))]
            return both + _alone(len(both), len(left), len(right))
        return _align([[self._likeness(a, b) for b in right] for a in left])

    def mark(self, left: Line, right: Line) -> tuple[Line, Line]:
        """Both lines with the words that differ marked; unmarked where the bound is reached."""
        if not self._affords(left, right):
            return left, right
        a, b = self._cut(left.text), self._cut(right.text)
        pieces = _bridged(_opcodes(self._keys(a), self._keys(b)), a)
        return (
            _mark(left, _flags(a, [(tag, i1, i2) for tag, i1, i2, _, _ in pieces])),
            _mark(right, _flags(b, [(tag, j1, j2) for tag, _, _, j1, j2 in pieces])),
        )

    def _likeness(self, left: Line, right: Line) -> float:
        if not self._affords(left, right):
            return 0.0
        a, b = self._cut(left.text.strip()), self._cut(right.text.strip())
        matcher = SequenceMatcher(None, self._keys(a), self._keys(b), autojunk=False)
        if matcher.quick_ratio() < ALIKE:
            return 0.0
        # By characters, not words: a renamed word may be most of a line, a bracket very little.
        same = sum(len("".join(a[i : i + n])) for i, _, n in matcher.get_matching_blocks())
        return 2 * same / max(1, sum(map(len, a)) + sum(map(len, b)))

    def _affords(self, left: Line, right: Line) -> bool:
        cost = (left.length + 50) * (right.length + 50) // 16  # 50: what a short line costs as well
        if max(left.length, right.length) > MAX_WORD_LINE:
            self.note = (
                f"Lines of more than {MAX_WORD_LINE:,} characters are not compared by words."
            )
            return False
        if cost > self.budget:
            self.note = "Too many changed lines to compare by words: later ones have no word marks."
            return False
        self.budget -= cost
        return True


def _alone(done: int, left: int, right: int) -> list[Pair]:
    return [(i, None) for i in range(done, left)] + [(None, j) for j in range(done, right)]


def _align(likeness: list[list[float]]) -> list[Pair]:
    """The in-order pairing with the greatest total likeness, by dynamic programming."""
    rows, columns = len(likeness), len(likeness[0])
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            alike = likeness[i][j]
            together = alike + best[i + 1][j + 1] if alike >= ALIKE else 0.0
            best[i][j] = max(best[i + 1][j], best[i][j + 1], together)
    pairs: list[Pair] = []
    i = j = 0
    while i < rows and j < columns:
        alike = likeness[i][j]
        if alike >= ALIKE and best[i][j] == alike + best[i + 1][j + 1]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            pairs.append((i, None))
            i += 1
        else:
            pairs.append((None, j))
            j += 1
    return pairs + [(k, None) for k in range(i, rows)] + [(None, k) for k in range(j, columns)]


def _bridged(opcodes: list[Opcode], a: list[str]) -> list[Opcode]:
    """Join changes that only a blank keeps apart: one marked phrase reads better than two."""
    joined = []
    for index, (tag, i1, i2, j1, j2) in enumerate(opcodes):
        inner = 0 < index < len(opcodes) - 1
        blank = tag == "equal" and inner and "".join(a[i1:i2]).isspace()
        joined.append(("replace" if blank else tag, i1, i2, j1, j2))
    return joined


def _flags(words: list[str], pieces: list[tuple[str, int, int]]) -> list[tuple[int, bool]]:
    """(characters, changed) runs over a line; neighbours that are alike make one run."""
    runs: list[tuple[int, bool]] = []
    for tag, start, end in pieces:
        length, changed = len("".join(words[start:end])), tag != "equal"
        if runs and runs[-1][1] == changed:
            length += runs.pop()[0]
        runs.append((length, changed))
    return runs


def _mark(line: Line, runs: list[tuple[int, bool]]) -> Line:
    """Cut the line's spans where runs begin and end, and mark those inside changed runs."""
    edges = iter([run for run in runs if run[0]])
    left, changed = next(edges, (line.length, False))
    spans: list[Span] = []
    for span in line.spans:
        rest = span.text
        while rest:
            piece, rest = rest[:left], rest[left:]
            spans.append(replace(span, text=piece, changed=changed))
            left -= len(piece)
            if not left:
                left, changed = next(edges, (len(rest) + 1, False))
    return replace(line, spans=tuple(spans))


def _regions(rows: tuple[Row, ...], near: list[bool]) -> Iterator[Region]:
    start = 0
    for index in range(1, len(rows) + 1):
        if index == len(rows) or near[index] != near[start]:
            # Folding one or two lines would take as much room as showing them.
            short = index - start <= 2
            yield Region(not near[start] and not short, rows[start:index])
            start = index


def _unified(rows: tuple[Row, ...]) -> Iterator[UnifiedLine]:
    """Neighbouring changed rows as all their left lines, then all their right lines."""
    block: list[Row] = []
    for row in rows:
        if row.kind != "same":
            block.append(row)
            continue
        yield from _block(block)
        block = []
        if row.left and row.right:
            yield UnifiedLine(" ", row.right, row.left.number, row.right.number)
    yield from _block(block)


def _block(rows: list[Row]) -> Iterator[UnifiedLine]:
    change = rows[0].change if rows else 0
    lines = [UnifiedLine("-", row.left, row.left.number, None) for row in rows if row.left]
    lines += [UnifiedLine("+", row.right, None, row.right.number) for row in rows if row.right]
    for index, line in enumerate(lines):
        yield replace(line, change=change if index == 0 else 0)
