"""What a compiler made of two candidates, side by side: what they use, and any of their levels.

Only analyses for the same target and case are held against each other in numbers; where there are
none, `why_no_deltas` says why. Reads what the log has and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from runner.analysis.levels import Level, Levels
from webapp.review.analyses import ANALYZE, Analysed, analyses_of
from webapp.review.diff import Diff
from webapp.review.dossier import Dossier
from webapp.review.level_diff import LevelDiff, Side, diff_levels
from webapp.review.levels import NoLevels, find_level, level_names, load_levels, title_of
from webapp.review.resources import KernelDelta, Row, deltas, keyed, paired

LANGUAGES = {"triton": "Triton", "cuda": "CUDA C++", "cpp": "C++"}
HEADLINE = 8  # changes of a kernel that the head of the page names
# Read first by most who compare; the order of compilation is that of the candidate's page.
FIRST = ("ttgir", "ptx", "sass")


@dataclass(frozen=True)
class KernelPair:
    """A kernel of each side that belong together; None where a side has none."""

    key: str
    a: Levels | None
    b: Levels | None

    @property
    def name(self) -> str:
        """Both names where the kernel has another one now."""
        return " → ".join(dict.fromkeys(each.kernel for each in (self.a, self.b) if each))


@dataclass(frozen=True)
class LevelTab:
    """One level of one pair of kernels. `problems` say why there is no `diff`, side by side."""

    title: str
    pairs: tuple[KernelPair, ...]
    chosen: KernelPair | None
    diff: LevelDiff | None
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Compiled:
    """The analyses of `a` and `b`, chosen so that they agree in target and case if any do."""

    def __init__(self, a: Dossier, b: Dossier) -> None:
        self.a, self.b = a, b

    @cached_property
    def _chosen(self) -> tuple[Analysed | None, Analysed | None]:
        found = analyses_of([self.a.candidate, self.b.candidate])
        a, b = (
            [row for row in reversed(found[each.candidate.pk]) if row.tool == ANALYZE]
            for each in (self.a, self.b)
        )
        alike = ((x, y) for y in b if y.kernels for x in a if x.kernels and x.about == y.about)
        return next(alike, (a[0] if a else None, b[0] if b else None))

    @property
    def analysis_a(self) -> Analysed | None:
        return self._chosen[0]

    @property
    def analysis_b(self) -> Analysed | None:
        return self._chosen[1]

    @property
    def any(self) -> bool:
        """Whether anything was analysed that can be counted: of host code, nothing can."""
        languages = {self.a.candidate.language, self.b.candidate.language}
        return languages != {"cpp"} and (self.analysis_a or self.analysis_b) is not None

    @cached_property
    def why_not_alike(self) -> str:
        """Empty where both were analysed for the same target and case."""
        a, b = self.analysis_a, self.analysis_b
        missing = [
            f"c{side.candidate.number}" for side, row in ((self.a, a), (self.b, b)) if row is None
        ]
        if missing:
            return f"{' and '.join(missing)} {'were' if missing[1:] else 'was'} not analysed."
        if a and b and a.about != b.about:
            here, there = " on ".join(filter(None, a.about)), " on ".join(filter(None, b.about))
            numbers = self.a.candidate.number, self.b.candidate.number
            return f"c{numbers[0]} was analysed for {here}, c{numbers[1]} for {there}."
        return ""

    @cached_property
    def why_no_deltas(self) -> str:
        """Empty where the numbers of both may be held against each other."""
        if self.why_not_alike:
            return self.why_not_alike
        for side, row in ((self.a, self.analysis_a), (self.b, self.analysis_b)):
            if row and not row.kernels:
                words = f": {row.payload.reason.rstrip('.')}." if row.payload.reason else "."
                return f"The analysis of c{side.candidate.number} has no numbers{words}"
        return ""

    @cached_property
    def kernels(self) -> tuple[KernelDelta, ...]:
        a, b = self.analysis_a, self.analysis_b
        if self.why_no_deltas or a is None or b is None:
            return ()
        return deltas(a.kernels, b.kernels)

    @property
    def both(self) -> list[KernelDelta]:
        return [each for each in self.kernels if each.a and each.b]

    @property
    def headline(self) -> tuple[Row, ...]:
        """What changed of the first kernel, what is known to be better or worse before the rest."""
        changed = self.both[0].changed if self.both else ()
        return tuple(sorted(changed, key=lambda row: not row.outcome)[:HEADLINE])

    @property
    def unchanged(self) -> bool:
        """Both use the same, as far as it is counted."""
        return bool(self.kernels) and not any_changed(self.kernels)

    @cached_property
    def tabs(self) -> dict[str, str]:
        """Name and title of the levels that either language has."""
        languages = self.a.candidate.language, self.b.candidate.language
        names = dict.fromkeys(name for each in languages for name in level_names(each))
        ordered = sorted(names, key=lambda name: name not in FIRST)
        return {name: title_of(name) for name in ordered}

    def tab(self, name: str, kernel: str, source: Diff) -> LevelTab:
        """Level `name` of the kernels that `kernel` names, else of the first ones."""
        title, problems, sides = title_of(name), [], []
        for dossier, row in ((self.a, self.analysis_a), (self.b, self.analysis_b)):
            try:
                sides.append(self._levels(dossier, row, name))
            except NoLevels as error:
                problems.append(str(error))
        if problems:
            return LevelTab(title, (), None, None, tuple(problems))
        pairs = pairs_of(*sides)
        chosen = next((pair for pair in pairs if pair.key == kernel), pairs[0] if pairs else None)
        if chosen is None:
            return LevelTab(title, pairs, None, None, ("Neither side has a kernel.",))
        try:
            diff = self._diff(name, chosen, source)
        except NoLevels as error:
            return LevelTab(title, pairs, chosen, None, (str(error),))
        return LevelTab(title, pairs, chosen, diff, notes=self._notes(diff))

    def _levels(self, dossier: Dossier, row: Analysed | None, name: str) -> tuple[Levels, ...]:
        candidate = dossier.candidate
        if name not in level_names(candidate.language):
            language = LANGUAGES.get(candidate.language, candidate.language)
            words = f"c{candidate.number} is written in {language}, which has no {title_of(name)}."
            raise NoLevels(words)
        return load_levels(row, candidate.number)

    def _diff(self, name: str, pair: KernelPair, source: Diff) -> LevelDiff:
        numbers = self.a.candidate.number, self.b.candidate.number
        if pair.a is None or pair.b is None:
            alone, other = (numbers[1], numbers[0]) if pair.b else (numbers[0], numbers[1])
            raise NoLevels(f"c{other} has nothing like {pair.name}, which only c{alone} has.")
        levels = find_level(pair.a, name, numbers[0]), find_level(pair.b, name, numbers[1])
        a = Side(levels[0], pair.a.kernel, self.a.lines.lines)
        b = Side(levels[1], pair.b.kernel, self.b.lines.lines)
        return diff_levels(name, a, b, self._became(levels, source))

    def _became(self, levels: tuple[Level, Level], source: Diff) -> list[tuple[int, int]]:
        """Source lines that became one another; by their numbers where a source is not here."""
        if self.a.source.missing or self.b.source.missing:
            both = set(levels[0].lines.values()) & set(levels[1].lines.values())
            return [(line, line) for line in both]
        rows = source.rows
        return [(row.left.number, row.right.number) for row in rows if row.left and row.right]

    def _notes(self, diff: LevelDiff) -> tuple[str, ...]:
        notes = list(diff.notes)
        if self.a.source.missing or self.b.source.missing:
            notes.insert(0, "A source is not here, so its lines are matched by number.")
        if self.why_not_alike:
            notes.insert(0, f"{self.why_not_alike} Some of what differs may be due to that.")
        return tuple(notes)


def any_changed(kernels: Sequence[KernelDelta]) -> bool:
    return any(not each.a or not each.b or each.changed for each in kernels)


def pairs_of(a: Sequence[Levels], b: Sequence[Levels]) -> tuple[KernelPair, ...]:
    """Kernels of one name in order, then the rest in order; keys are unique."""
    mine, other = [each.kernel for each in a], [each.kernel for each in b]
    keys_a, keys_b = keyed(mine), keyed(other)
    return tuple(
        KernelPair(
            key=keys_b[j] if j is not None else keys_a[i or 0],
            a=None if i is None else a[i],
            b=None if j is None else b[j],
        )
        for i, j in paired(mine, other)
    )
