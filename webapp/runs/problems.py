"""Pages of the problem catalog: what can be launched, and the contract of each problem.

The contract is the catalog's and is only shown here; what is added is what was measured so far.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from django.db.models import Count
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from kernels.catalog import Case, Problem, UnknownProblem, load_all, load_problem
from webapp.runs.models import Candidate, Run


@dataclass(frozen=True)
class Row:
    problem: Problem
    runs: int
    best: tuple[Candidate, ...]


@dataclass(frozen=True)
class CaseSet:
    name: str
    kind: str
    cases: tuple[Case, ...]


@require_GET
def problems(request: HttpRequest) -> HttpResponse:
    counted = Run.objects.values_list("problem").annotate(Count("pk"))
    runs, best = dict(counted), best_by_problem()
    rows = [Row(p, runs.get(p.slug, 0), best[p.slug]) for p in load_all()]
    return render(request, "problems/list.html", {"nav": "problems", "rows": rows})


@require_GET
def problem(request: HttpRequest, slug: str) -> HttpResponse:
    try:
        found = load_problem(slug)
    except UnknownProblem as error:
        raise Http404(f"{error} {error.remedy}") from error
    context = {
        "nav": "problems",
        "problem": found,
        "sets": case_sets(found),
        "prototypes": [found.cpp_prototype(dtype) for dtype in found.tolerances],
        "reference": found.reference_path.read_text(encoding="utf-8"),
        "best": best_by_problem(slug)[slug],
    }
    return render(request, "problems/detail.html", context)


def case_sets(found: Problem) -> list[CaseSet]:
    return [
        CaseSet(name, kind, found.cases_in(name))
        for kind in ("host", "cuda")
        for name in found.case_sets(kind)
    ]


def best_by_problem(slug: str = "") -> defaultdict[str, tuple[Candidate, ...]]:
    """The fastest candidate of each problem on each device model and case set, fastest first.

    Speedups on different machines or shapes are different facts, so each pair keeps its own. Only
    each run's best is looked at.
    """
    rows = Candidate.objects.filter(pk__in=Run.objects.exclude(best=None).values("best"))
    rows = rows.select_related("run").order_by("-ci_low")
    return _first_of_each(rows.filter(run__problem=slug) if slug else rows)


def _first_of_each(rows: Iterable[Candidate]) -> defaultdict[str, tuple[Candidate, ...]]:
    best: defaultdict[str, tuple[Candidate, ...]] = defaultdict(tuple)
    seen = set()
    for row in rows:
        evaluation = row.evaluation
        assert evaluation is not None  # a run's best was measured
        key = (row.run.problem, row.run.spec.case_set, evaluation.device.model)
        if key not in seen:
            seen.add(key)
            best[row.run.problem] += (row,)
    return best
