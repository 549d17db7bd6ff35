"""The candidate, compare and roofline pages. Views parse, ask one module, and render."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render

from webapp.runs.models import Candidate, Run


def candidate(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    row = get_object_or_404(Candidate.objects.select_related("run"), run_id=pk, number=number)
    return render(
        request, "review/candidate.html", {"nav": "runs", "candidate": row, "run": row.run}
    )


def candidate_source(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    get_object_or_404(Candidate, run_id=pk, number=number)
    return HttpResponse("", content_type="text/plain; charset=utf-8")


def roofline(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_object_or_404(Run, pk=pk)
    return render(request, "review/roofline.html", {"nav": "runs", "run": run})


def artifact(request: HttpRequest, sha256: str) -> HttpResponse:
    return HttpResponse("", content_type="text/plain; charset=utf-8")


def compare(request: HttpRequest) -> HttpResponse:
    return render(request, "review/compare.html", {"nav": "runs"})


def plotly_js(request: HttpRequest, version: str) -> HttpResponse:
    return HttpResponse("", content_type="text/javascript")
