"""Two candidates side by side: is the second faster than the first, and what changed.

The two were never timed in one lease, so the ratio here is always indirect: each has its own ratio
to a baseline, and those two are divided. Where even that would mislead (another device, another
baseline) there is no ratio, and `why_no_ratio` says why. Reads only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from urllib.parse import urlencode

from django.db.models import Exists, OuterRef, Q

from runner.results import CaseResult, Evaluation, Outcome
from webapp.review.compiled import Compiled
from webapp.review.diff import Diff, diff_sources
from webapp.review.dossier import Constant, Dossier, constants_between
from webapp.runs.models import Candidate, Run

MAX_OPTIONS = 500  # candidates a picker lists; any other is reached through its own page
MAX_RUNS = 20
_ADDRESS = re.compile(r"(\d{1,9})\.(\d{1,9})")


@dataclass(frozen=True)
class Ratio:
    """How many times faster the second is than the first: time of the first ÷ time of the second.

    The interval pairs the far ends of both intervals: wider than a joint one, never narrower.
    """

    value: float
    low: float
    high: float

    @property
    def outcome(self) -> Outcome:
        if self.low > 1:
            return Outcome.faster
        return Outcome.slower if self.high < 1 else Outcome.indistinguishable

    @property
    def ci95(self) -> tuple[float, float]:
        return self.low, self.high

    @classmethod
    def of(
        cls,
        before: float,
        before_ci: tuple[float, float],
        after: float,
        after_ci: tuple[float, float],
    ) -> Ratio:
        return cls(after / before, after_ci[0] / before_ci[1], after_ci[1] / before_ci[0])


@dataclass(frozen=True)
class CaseDelta:
    """One case of both sides; `ratio` None where a side has no time, or they cannot be compared."""

    name: str
    a: CaseResult | None
    b: CaseResult | None
    ratio: Ratio | None


@dataclass(frozen=True)
class Difference:
    """A circumstance of the two measurements that was not the same."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class TabLink:
    """A tab of the page: a level's name, its title, and where it is."""

    name: str
    title: str
    address: str


class Comparison:
    """From `a` to `b`."""

    def __init__(self, a: Candidate, b: Candidate, *, ignore_space: bool = False) -> None:
        self.a, self.b = Dossier(a), Dossier(b)
        self.ignore_space = ignore_space

    @property
    def both_sides(self) -> tuple[Dossier, Dossier]:
        return self.a, self.b

    @property
    def same_run(self) -> bool:
        return self.a.run.pk == self.b.run.pk

    @property
    def identical(self) -> bool:
        return self.a.candidate.source_sha256 == self.b.candidate.source_sha256

    @cached_property
    def compiled(self) -> Compiled:
        return Compiled(self.a, self.b)

    def links(self, view: str, tab: str = "", kernel: str = "") -> dict[str, str]:
        """Addresses of the same comparison seen otherwise."""
        a, b = _address(self.a.candidate), _address(self.b.candidate)
        here = {"a": a, "b": b, "view": view, "w": "1" if self.ignore_space else ""}
        here |= {"tab": tab, "kernel": kernel}
        return {
            "swap": _query(here | {"a": b, "b": a}),
            "split": _query(here | {"view": "split"}),
            "unified": _query(here | {"view": "unified"}),
            "blanks": _query(here | {"w": "" if self.ignore_space else "1"}),
            "source": _query(here | {"tab": "", "kernel": ""}),
        }

    def tab_links(self, view: str) -> list[TabLink]:
        """The levels that either side may have."""
        here = {"a": _address(self.a.candidate), "b": _address(self.b.candidate), "view": view}
        tabs = self.compiled.tabs.items()
        return [TabLink(name, title, _query(here | {"tab": name})) for name, title in tabs]

    @cached_property
    def diff(self) -> Diff:
        return diff_sources(
            self.a.source.text,
            self.b.source.text,
            self.a.candidate.language,
            self.b.candidate.language,
            ignore_space=self.ignore_space,
        )

    @cached_property
    def constants(self) -> list[Constant]:
        return constants_between(self.a.payload, self.b.payload, self.b.problem)

    @property
    def changed_constants(self) -> list[Constant]:
        return [constant for constant in self.constants if constant.changed]

    @cached_property
    def why_no_ratio(self) -> str:
        """Empty when the two speedups may be divided by one another."""
        a, b = self.a.evaluation, self.b.evaluation
        for dossier in (self.a, self.b):
            if dossier.evaluation is None or dossier.evaluation.speedup is None:
                return f"c{dossier.candidate.number} was not timed, so there is no ratio."
        if a is None or b is None:
            return ""
        if self.a.run.problem != self.b.run.problem:
            return "They solve different problems."
        if a.device.uuid != b.device.uuid:
            return "They were measured on different devices."
        if _baselines(a) != _baselines(b):
            return "They were timed on different cases or against different baselines."
        return ""

    @cached_property
    def ratio(self) -> Ratio | None:
        """Over all scored cases, as the geometric means of the two sides."""
        a, b = self.a.evaluation, self.b.evaluation
        if self.why_no_ratio or a is None or b is None:
            return None
        if a.speedup is None or b.speedup is None or a.ci95 is None or b.ci95 is None:
            return None
        return Ratio.of(a.speedup, a.ci95, b.speedup, b.ci95)

    @cached_property
    def cases(self) -> list[CaseDelta]:
        """Scored cases of either side."""
        a, b = _scored(self.a.evaluation), _scored(self.b.evaluation)
        names = dict.fromkeys([*b, *a])
        return [self._delta(name, a.get(name), b.get(name)) for name in names]

    def _delta(self, name: str, a: CaseResult | None, b: CaseResult | None) -> CaseDelta:
        ratio = None
        if self.ratio and a and b and a.timing and b.timing:
            ratio = Ratio.of(a.timing.speedup, a.timing.ci95, b.timing.speedup, b.timing.ci95)
        return CaseDelta(name, a, b, ratio)

    @cached_property
    def differences(self) -> list[Difference]:
        """What else was not the same between the two measurements."""
        a, b = self.a.evaluation, self.b.evaluation
        if a is None or b is None:
            return []
        rows = [
            Difference("device", a.device.model, b.device.model),
            Difference("device uuid", a.device.uuid, b.device.uuid),
            Difference("timer", a.timer, b.timer),
            Difference("isolation", a.isolation, b.isolation),
            *(
                Difference(name, a.versions.get(name, "–"), b.versions.get(name, "–"))
                for name in dict.fromkeys([*a.versions, *b.versions])
            ),
        ]
        return [row for row in rows if row.a != row.b]


def _address(candidate: Candidate) -> str:
    return f"{candidate.run_id}.{candidate.number}"


def _query(asked: dict[str, str]) -> str:
    return "?" + urlencode({name: value for name, value in asked.items() if value})


def _baselines(evaluation: Evaluation) -> dict[str, str]:
    return {case.case: case.timing.baseline for case in evaluation.scored if case.timing}


def _scored(evaluation: Evaluation | None) -> dict[str, CaseResult]:
    return {case.case: case for case in evaluation.scored} if evaluation else {}


@dataclass(frozen=True)
class Option:
    """A candidate in a picker; `address` is what the page's own address names it by."""

    address: str
    candidate: Candidate


@dataclass(frozen=True)
class Sides:
    """The two candidates an address asks for. `problem` says what it asks for in vain."""

    a: Candidate | None
    b: Candidate | None
    problem: str = ""

    @classmethod
    def of(cls, a: str, b: str) -> Sides:
        """`3.6` names candidate 6 of run 3; a side that is not named gets a sensible one."""
        wanted = {name: text for name, text in (("a", a), ("b", b)) if text}
        found = {name: _find(text) for name, text in wanted.items()}
        lost = [
            f"{name}: {wanted[name]!r} names no candidate." for name in found if not found[name]
        ]
        if lost:
            remedy = "Choose one below, or write run.number, such as 3.6."
            return cls(found.get("a"), found.get("b"), " ".join([*lost, remedy]))
        return cls(*_completed(found.get("a"), found.get("b")))


def _find(address: str) -> Candidate | None:
    match = _ADDRESS.fullmatch(address.strip())
    if match is None:
        return None
    rows = Candidate.objects.select_related("run", "parent", "parent__run")
    return rows.filter(run_id=int(match[1]), number=int(match[2])).first()


def _completed(
    a: Candidate | None, b: Candidate | None
) -> tuple[Candidate | None, Candidate | None]:
    """Before it, its parent or the first of its run; after it, the best. Else the latest run's."""
    if a and b:
        return a, b
    if b:
        return b.parent or _other(b, b.run.candidates.select_related("run").first()), b
    if a:
        return a, _other(a, a.run.best) or _other(a, a.run.candidates.select_related("run").last())
    for run in (
        Run.objects.exclude(best=None).select_related("best__run").order_by("-pk")[:MAX_RUNS]
    ):
        first = run.candidates.select_related("run").first()
        if first and run.best and first.pk != run.best.pk:
            return first, run.best
    return None, None


def _other(one: Candidate, other: Candidate | None) -> Candidate | None:
    return other if other and other.pk != one.pk else None


def options(sides: Sides) -> list[tuple[Run, list[Option]]]:
    """What the pickers offer: the runs of both sides and the latest others, grouped by run."""
    chosen = [side.run_id for side in (sides.a, sides.b) if side]
    problems = {side.run.problem for side in (sides.a, sides.b) if side}
    has_candidates = Exists(Candidate.objects.filter(run=OuterRef("pk")))
    recent = Run.objects.filter(has_candidates).order_by("-pk")
    if problems:
        recent = recent.filter(problem__in=problems)
    latest = list(recent.values_list("pk", flat=True)[:MAX_RUNS])
    rows = (
        Candidate.objects.filter(Q(run__in=chosen) | Q(run__in=latest))
        .select_related("run")
        .defer("evaluation_text", "reason")
        .order_by("-run_id", "number")
    )
    return list(_grouped(_chosen_first(rows, chosen)))


def _chosen_first(rows: Iterable[Candidate], chosen: list[int]) -> list[Candidate]:
    """Both sides' runs whole, then others up to the bound, each run's candidates together."""
    ordered = sorted(rows, key=lambda row: (row.run_id not in chosen, -row.run_id, row.number))
    own = sum(row.run_id in chosen for row in ordered)
    return ordered[: max(MAX_OPTIONS, own)]


def _grouped(rows: list[Candidate]) -> Iterable[tuple[Run, list[Option]]]:
    for _, group in groupby(rows, key=lambda row: row.run_id):
        members = list(group)
        listed = [Option(_address(row), row) for row in members]
        yield members[0].run, listed
