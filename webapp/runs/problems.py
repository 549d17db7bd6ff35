"""Pages of the problem catalog: what can be launched, and the contract of each problem."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render

from kernels.catalog import UnknownProblem, load_all, load_problem


def problems(request: HttpRequest) -> HttpResponse:
    return render(request, "problems/list.html", {"nav": "problems", "problems": load_all()})


def problem(request: HttpRequest, slug: str) -> HttpResponse:
    try:
        found = load_problem(slug)
    except UnknownProblem as error:
        raise Http404(f"{error} {error.remedy}") from error
    return render(request, "problems/detail.html", {"nav": "problems", "problem": found})
