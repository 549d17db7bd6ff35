"""Everything that is known of one candidate, gathered for its page and for comparisons.

Reads rows, events and artifacts in a number of queries that does not depend on how many there are,
and writes nothing. What was measured comes from the evaluation alone; this module judges nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from django.db.models import Q, QuerySet

from kernels.catalog import CatalogError, Problem, Tolerance, UnknownProblem, load_problem
from runner.events import CandidatePayload, EventType
from runner.results import CaseResult, Evaluation
from runner.wire import from_json
from webapp.review.analyses import Analysed, Analyses, analyses_of
from webapp.review.resources import KernelDelta, deltas
from webapp.review.source import Source, read_source, text_of
from webapp.runs import store
from webapp.runs.models import Candidate, Event, Run

MAX_SHOWN_BYTES = 128 * 1024  # of a source on a page; the download has all of it
SHOWN_ANCESTORS = 8  # nearest ones; what lies between them and the first is folded


@dataclass(frozen=True)
class SourceText:
    """A source as a page may hold it; `missing` says why there is none."""

    text: str = ""
    size: int = 0
    missing: str = ""

    @property
    def cut(self) -> bool:
        return self.size > MAX_SHOWN_BYTES

    @classmethod
    def of(cls, candidate: Candidate) -> SourceText:
        try:
            content = store.read(candidate.source_sha256)
        except store.MissingArtifact as error:
            return cls(missing=str(error))
        return cls(text_of(content[:MAX_SHOWN_BYTES]), len(content))


@dataclass(frozen=True)
class Constant:
    """A tuning constant, beside its value in the candidate that this one came from."""

    name: str
    value: int | None
    before: int | None
    why: str

    @property
    def changed(self) -> bool:
        return self.value != self.before


@dataclass(frozen=True)
class CaseRow:
    """A case's result beside what the contract allows; None where the contract is not here."""

    result: CaseResult
    tolerance: Tolerance | None

    @property
    def error_exceeds(self) -> bool:
        return _exceeds(
            self.result.max_rel_error, self.tolerance.element if self.tolerance else None
        )

    @property
    def norm_exceeds(self) -> bool:
        return _exceeds(self.result.norm_error, self.tolerance.norm if self.tolerance else None)


def _exceeds(error: float | None, allowed: float | None) -> bool:
    return error is not None and allowed is not None and error > allowed


@dataclass(frozen=True)
class Ghost:
    """A parent that the log names and that is not there."""

    number: int


class Dossier:
    """One candidate with its log entry, source, family, analyses and contract.

    `asked_analysis` is the step of the analysis to show, where it is not the latest.
    """

    def __init__(self, candidate: Candidate, *, asked_analysis: int = 0) -> None:
        self.candidate = candidate
        self.run: Run = candidate.run
        self.asked_analysis = asked_analysis

    @cached_property
    def evaluation(self) -> Evaluation | None:
        return self.candidate.evaluation

    @cached_property
    def problem(self) -> Problem | None:
        return known_problem(self.run.problem)

    @cached_property
    def source(self) -> SourceText:
        return SourceText.of(self.candidate)

    @cached_property
    def lines(self) -> Source:
        return read_source(self.source.text, self.candidate.language)

    @cached_property
    def family(self) -> list[Candidate]:
        """All candidates of the run, without their evaluations."""
        return list(self.run.candidates.defer("evaluation_text", "reason"))

    @cached_property
    def parent(self) -> Candidate | None:
        return next((c for c in self.family if c.pk == self.candidate.parent_id), None)

    @property
    def first(self) -> Candidate:
        return self.family[0]

    @property
    def best(self) -> Candidate | None:
        return next((c for c in self.family if c.pk == self.run.best_id), None)

    @property
    def previous(self) -> Candidate | None:
        number = self.candidate.number
        return next((c for c in reversed(self.family) if c.number < number), None)

    @property
    def next(self) -> Candidate | None:
        return next((c for c in self.family if c.number > self.candidate.number), None)

    @property
    def judged_another(self) -> bool:
        """The evaluation is bound to the hash of what it judged; any other number is not ours."""
        judged = self.evaluation.source_sha256 if self.evaluation else ""
        return bool(judged) and judged != self.candidate.source_sha256

    @cached_property
    def children(self) -> list[Candidate]:
        return [c for c in self.family if c.parent_id == self.candidate.pk]

    @cached_property
    def ancestors(self) -> list[Candidate]:
        """From the first of the line to the parent."""
        rows = {c.pk: c for c in self.family}
        line: list[Candidate] = []
        row = self.parent
        while row and row not in line:
            line.insert(0, row)
            row = rows.get(row.parent_id) if row.parent_id else None
        return line

    @property
    def hidden_ancestors(self) -> list[Candidate]:
        """What is folded between the first of the line and its nearest ancestors."""
        return self.ancestors[1:-SHOWN_ANCESTORS]

    @property
    def near_ancestors(self) -> list[Candidate]:
        return self.ancestors[1:][-SHOWN_ANCESTORS:]

    @cached_property
    def payloads(self) -> dict[int, CandidatePayload]:
        """By candidate row: what the log says of this one, its parent and the run's first."""
        rows = [self.candidate, self.first, *([self.parent] if self.parent else [])]
        return payloads_of(rows)

    @property
    def payload(self) -> CandidatePayload | None:
        return self.payloads.get(self.candidate.pk)

    @cached_property
    def _analysed(self) -> dict[int, list[Analysed]]:
        """By candidate row: of this one and its parent."""
        return analyses_of([self.candidate, *([self.parent] if self.parent else [])])

    @cached_property
    def analyses(self) -> Analyses:
        return Analyses(self._analysed[self.candidate.pk], self.asked_analysis)

    @cached_property
    def kernels(self) -> tuple[KernelDelta, ...]:
        """What each kernel uses, beside its parent's if that was analysed for the same."""
        own = self.analyses.analysis
        if own is None:
            return ()
        rows = self._analysed[self.parent.pk] if self.parent else []
        same = [row for row in rows if row.tool == own.tool and row.about == own.about]
        before = same[-1].kernels if same else ()
        return tuple(delta for delta in deltas(before, own.kernels) if delta.b)

    @cached_property
    def ghost(self) -> Ghost | None:
        """The parent that the log names where no such row exists."""
        if self.parent or self.payload is None or self.payload.parent is None:
            return None
        return Ghost(self.payload.parent)

    @cached_property
    def constants(self) -> list[Constant]:
        """Of this candidate, beside its parent's; nothing is `changed` in a first one."""
        own = self.payload
        before = self.payloads.get(self.parent.pk) if self.parent else own
        return constants_between(before, own, self.problem)

    @cached_property
    def cases(self) -> list[CaseRow]:
        if self.evaluation is None:
            return []
        allowed = self.problem.tolerances if self.problem else {}
        return [CaseRow(case, allowed.get(case.dtype)) for case in self.evaluation.cases]

    @property
    def scored(self) -> list[CaseRow]:
        return [row for row in self.cases if row.result.scored]

    @property
    def checked_only(self) -> list[CaseRow]:
        return [row for row in self.cases if not row.result.scored]

    @property
    def comparisons(self) -> list[tuple[str, Candidate]]:
        """What one would compare this candidate with, each other candidate once."""
        others = [("parent", self.parent), ("best", self.best), ("first", self.first)]
        found: dict[int, tuple[str, Candidate]] = {}
        for name, other in others:
            if other is not None and other.pk != self.candidate.pk:
                found.setdefault(other.pk, (name, other))
        return list(found.values())


def known_problem(slug: str) -> Problem | None:
    """The contract, where it is here: an imported run may be about another problem."""
    try:
        return load_problem(slug)
    except (UnknownProblem, CatalogError):
        return None


def payloads_of(candidates: Sequence[Candidate]) -> dict[int, CandidatePayload]:
    """What the log says of each candidate, by row; one query."""
    wanted = Q(pk__in=[])
    for candidate in candidates:
        wanted |= Q(run_id=candidate.run_id, seq=candidate.seq)
    events: QuerySet[Event] = Event.objects.filter(wanted, type=EventType.candidate.value)
    bodies = {(event.run_id, event.seq): event.body for event in events}
    found = {}
    for candidate in candidates:
        if body := bodies.get((candidate.run_id, candidate.seq)):
            found[candidate.pk] = from_json(CandidatePayload, json.loads(body)["payload"])
    return found


def constants_between(
    before: CandidatePayload | None, after: CandidatePayload | None, problem: Problem | None
) -> list[Constant]:
    """Every constant of either side, changed ones first, with the contract's reason for it."""
    old = before.constants if before else {}
    new = after.constants if after else {}
    why = {
        parameter.name: parameter.why
        for kernel in (problem.zoo if problem else ())
        if after and kernel.name == after.kernel
        for parameter in kernel.parameters
    }
    rows = [Constant(n, new.get(n), old.get(n), why.get(n, "")) for n in _names(new, old)]
    return sorted(rows, key=lambda row: not row.changed)


def _names(*mappings: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for mapping in mappings for name in mapping))
