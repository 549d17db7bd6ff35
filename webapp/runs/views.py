"""Pages of runs: the list, the launch form, the live page with its fragments, import and export."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST

from webapp.runs.models import Event, Run


def runs(request: HttpRequest) -> HttpResponse:
    return render(request, "runs/list.html", {"nav": "runs"})


def launch(request: HttpRequest) -> HttpResponse:
    return render(request, "runs/launch.html", {"nav": "runs"})


@require_POST
def import_run(request: HttpRequest) -> HttpResponse:
    return render(request, "runs/list.html", {"nav": "runs"})


def run(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "runs/run.html", {"nav": "runs", "run": get_object_or_404(Run, pk=pk)})


@require_POST
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "runs/run.html", {"nav": "runs", "run": get_object_or_404(Run, pk=pk)})


def events(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("")


def event(request: HttpRequest, pk: int, seq: int) -> HttpResponse:
    """One row of the log as it is stored."""
    found = get_object_or_404(Event, run=pk, seq=seq)
    return HttpResponse(found.body, content_type="application/json")


def panel(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("")


def export(request: HttpRequest, pk: int) -> HttpResponse:
    return HttpResponse("")


def artifact(request: HttpRequest, sha256: str) -> HttpResponse:
    return HttpResponse("")
