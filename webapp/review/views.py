"""The candidate, compare and roofline pages. Each view parses, asks one module, and renders."""

from __future__ import annotations

from django.contrib.auth.decorators import login_not_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_GET

from webapp.review import plotly
from webapp.review.analyses import Analyses, analyses_of
from webapp.review.compare import Comparison, Sides, options
from webapp.review.dialects import DIALECTS
from webapp.review.dossier import Dossier
from webapp.review.levels import LevelView
from webapp.review.run_roofline import RunRoofline
from webapp.runs import store
from webapp.runs.models import Candidate, Run

SUFFIXES = {"cpp": "cpp", "cuda": "cu", "triton": "py"}


@require_GET
def candidate(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    found = _candidate(pk, number)
    dossier = Dossier(found, asked_analysis=_number(request, "analysis"))
    context = {
        "nav": "runs",
        "run": found.run,
        "candidate": found,
        "dossier": dossier,
        "view": _level_view(request, found, dossier.analyses),
    }
    return render(request, "review/candidate.html", context)


@require_GET
def candidate_levels(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """One window of a level, for the candidate's page; or the whole of it, as a download."""
    found = _candidate(pk, number)
    rows = analyses_of([found])[found.pk]
    view = _level_view(request, found, Analyses(rows, _number(request, "analysis")))
    if request.GET.get("download") != "1":
        return render(request, "review/_levels.html", {"view": view})
    if view.level is None:
        raise Http404(view.problem or "No level was asked for.")
    known = view.level.name if view.level.name in DIALECTS else "level"
    name = f"{found.run.problem}-run{pk}-c{number}.{known}.txt"
    return _plain(view.level.text.encode(), name)


def _level_view(request: HttpRequest, found: Candidate, analyses: Analyses) -> LevelView:
    return LevelView(
        found,
        analyses.analysis,
        level=request.GET.get("level", ""),
        kernel=request.GET.get("kernel", ""),
        start=_number(request, "from"),
        source_line=_number(request, "line"),
    )


def _number(request: HttpRequest, name: str) -> int:
    """A number of the address; 0 for what is none."""
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0


@require_GET
def candidate_source(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    """The source as it was judged, byte for byte."""
    found = _candidate(pk, number)
    suffix = SUFFIXES.get(found.language, "txt")
    return _download(found.source_sha256, f"{found.run.problem}-run{pk}-c{number}.{suffix}")


@require_GET
def artifact(request: HttpRequest, sha256: str) -> HttpResponse:
    return _download(sha256, f"{sha256[:12]}.txt")


def _candidate(pk: int, number: int) -> Candidate:
    rows = Candidate.objects.select_related("run__launched_by")
    return get_object_or_404(rows, run_id=pk, number=number)


def _download(sha256: str, name: str) -> HttpResponse:
    try:
        content = store.read(sha256)
    except store.MissingArtifact as error:
        raise Http404(str(error)) from None
    return _plain(content, name)


def _plain(content: bytes, name: str) -> HttpResponse:
    """Untrusted bytes: always plain text, always a download, never a page of ours."""
    response = HttpResponse(content, content_type="text/plain; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    return response


@require_GET
def compare(request: HttpRequest) -> HttpResponse:
    asked = request.GET
    sides = Sides.of(asked.get("a", ""), asked.get("b", ""))
    ignore_space = asked.get("w") == "1"
    view = "unified" if asked.get("view") == "unified" else "split"
    context = {
        "nav": "runs",
        "sides": sides,
        "comparison": None,
        "options": options(sides),
        "view": view,
        "ignore_space": ignore_space,
    }
    if sides.a and sides.b:
        comparison = Comparison(sides.a, sides.b, ignore_space=ignore_space)
        tab = asked.get("tab", "") if asked.get("tab") in comparison.compiled.tabs else ""
        kernel = asked.get("kernel", "")
        context |= {
            "comparison": comparison,
            "compiled": comparison.compiled,
            "links": comparison.links(view, tab, kernel),
            "tabs": comparison.tab_links(view),
            "tab": tab,
            "kernel": kernel,
        }
        if tab:
            context["level"] = comparison.compiled.tab(tab, kernel, comparison.diff)
    return render(request, "review/compare.html", context, status=404 if sides.problem else 200)


@require_GET
def roofline(request: HttpRequest, pk: int) -> HttpResponse:
    run = get_object_or_404(Run, pk=pk)
    page = RunRoofline(run, request.GET.get("case", ""))
    kind = request.GET.get("format", "")
    if kind == "json":
        return _attached(page.json_text(), "application/json", f"{page.file_name}.json")
    if kind == "csv":
        return _attached(page.csv_text(), "text/csv; charset=utf-8", f"{page.file_name}.csv")
    context = {"nav": "runs", "run": run, "page": page, "plotly": plotly.address()}
    return render(request, "review/roofline.html", context)


def _attached(text: str, content_type: str, name: str) -> HttpResponse:
    response = HttpResponse(text, content_type=content_type)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_GET
@login_not_required
def plotly_js(request: HttpRequest, version: str) -> HttpResponse:
    return plotly.serve(request, version)
