"""Pages of runs: the list, the launch form, the live page with its fragments, import and export.

Each view parses, asks one model, form or reading module, and renders.
"""

from __future__ import annotations

import os
import tempfile

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.paginator import Paginator
from django.http import FileResponse, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from kernels.catalog import slugs
from runner.bundle import ArchiveError
from runner.events import RunStatus
from webapp.runs.archives import export_archive, import_archive
from webapp.runs.asking import AskForm
from webapp.runs.forms import LaunchForm
from webapp.runs.models import Event, Run
from webapp.runs.overview import Overview, with_budgets
from webapp.runs.window import TraceFilter, Window

RUNS_PER_PAGE = 50


class SignedIn(HttpRequest):
    """What LoginRequiredMiddleware lets through."""

    user: User


STATUSES = [status.value for status in RunStatus]


@require_GET
def runs(request: HttpRequest) -> HttpResponse:
    return _runs_page(request)


def _runs_page(
    request: HttpRequest, import_error: ArchiveError | None = None, status: int = 200
) -> HttpResponse:
    problem, state = request.GET.get("problem", ""), request.GET.get("status", "")
    found = with_budgets(Run.objects.for_dashboard())
    if problem:
        found = found.filter(problem=problem)
    if state:
        found = found.filter(status=state)
    page = Paginator(found, RUNS_PER_PAGE).get_page(request.GET.get("page"))
    overviews = [Overview(row) for row in page.object_list]
    context = {
        "nav": "runs",
        "page": page,
        "overviews": overviews,
        "any_cost": any(overview.asks_models for overview in overviews),
        "problem": problem,
        "status": state,
        "statuses": STATUSES,
        "problems": slugs(),
        "filtered": bool(problem or state),
        "any_active": any(not row.state.ended for row in page.object_list),
        "import_error": import_error,
    }
    partial = request.headers.get("HX-Target") == "runs-table"
    return render(
        request, "runs/_table.html" if partial else "runs/list.html", context, status=status
    )


@require_http_methods(["GET", "POST"])
def launch(request: SignedIn) -> HttpResponse:
    if request.method == "POST":
        form = LaunchForm(request.POST)
        if form.is_valid():
            return redirect(form.save(request.user))
    else:
        form = LaunchForm.preset(request.GET)
    context = {"nav": "runs", "form": form}
    return render(request, "runs/launch.html", context, status=422 if form.errors else 200)


@require_POST
def import_run(request: SignedIn) -> HttpResponse:
    upload = request.FILES.get("archive")
    if upload is None or upload.file is None:
        error = ArchiveError("archive", "no file was chosen.", "Choose a *.warpdeck.zip file.")
        return _runs_page(request, error, 422)
    try:
        imported = import_archive(upload.file, request.user)
    except ArchiveError as error:
        return _runs_page(request, error, 422)
    if imported.created:
        messages.success(request, f"Imported as run {imported.run.pk}.")
    else:
        messages.info(request, f"This run is here already, as run {imported.run.pk}.")
    return redirect(imported.run)


@require_GET
def run(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Run.objects.for_dashboard(), pk=pk)
    chosen = TraceFilter.from_query(request.GET)
    overview = Overview(found)
    context = {
        "nav": "runs",
        "run": found,
        "overview": overview,
        "ask": AskForm(overview),
        "filter": chosen,
        "window": _window(request, found, chosen),
    }
    return render(request, "runs/run.html", context)


def _window(request: HttpRequest, found: Run, chosen: TraceFilter) -> Window:
    """The steps that `seq`, `before` or `after` of the address ask for; the newest otherwise."""
    asked = {name: request.GET.get(name, "") for name in ("seq", "before", "after")}
    number = {name: int(text) for name, text in asked.items() if text.isdecimal()}
    if "seq" in number:
        return Window.around(found, number["seq"], chosen)
    if "before" in number:
        return Window.before(found, number["before"], chosen)
    if "after" in number:
        return Window.after(found, number["after"], chosen)
    return Window.tail(found, chosen)


@require_http_methods(["GET", "POST"])
def ask(request: SignedIn, pk: int) -> HttpResponse:
    """Pause, resume, stop, steer or extend. A page asks with htmx and is told in its place."""
    found = get_object_or_404(Run.objects.for_dashboard(), pk=pk)
    overview = Overview(found)
    if request.method == "GET":
        return _ask_page(request, AskForm(overview, action=request.GET.get("action", "")))
    form = AskForm(overview, request.POST)
    asked = form.ask(request.user.get_username())
    if request.headers.get("HX-Request"):
        context = {"form": form, "asked": asked}
        response = render(request, "runs/_asked.html", context, status=200 if asked else 422)
        if asked:
            response["HX-Trigger"] = "run-asked"
        return response
    return redirect(found) if asked else _ask_page(request, form, 422)


def _ask_page(request: HttpRequest, form: AskForm, status: int = 200) -> HttpResponse:
    context = {"nav": "runs", "run": form.run, "overview": form.overview, "form": form}
    return render(request, "runs/ask.html", context, status=status)


@require_GET
@never_cache
def events(request: HttpRequest, pk: int) -> HttpResponse:
    """Steps as HTML: what follows `after` for the live page, what precedes `before` for reading."""
    found = get_object_or_404(Run, pk=pk)
    window = _window(request, found, TraceFilter.from_query(request.GET))
    context = {"run": found, "window": window, "fragment": True}
    response = render(request, "runs/_trace.html", context)
    response["X-Run-Status"] = found.status
    response["X-Last-Seq"] = str(found.last_seq)
    return response


@require_GET
def event(request: HttpRequest, pk: int, seq: int) -> HttpResponse:
    """One step of the log, whole, as it is stored."""
    found = get_object_or_404(Event, run=pk, seq=seq)
    return HttpResponse(found.body, content_type="application/json")


@require_GET
@never_cache
def panel(request: HttpRequest, pk: int) -> HttpResponse:
    """What stands around the trace, each part to be swapped in by its id."""
    found = get_object_or_404(Run.objects.for_dashboard(), pk=pk)
    context = {"run": found, "overview": Overview(found), "swap": True}
    return render(request, "runs/_panels.html", context)


@require_GET
def export(request: HttpRequest, pk: int) -> HttpResponseBase:
    found = get_object_or_404(Run, pk=pk)
    if not found.last_seq:
        messages.info(request, "There is nothing to export before the run's first step.")
        return redirect(found)
    with tempfile.TemporaryFile() as file:
        export_archive(found, file)
        file.seek(0)
        return _download(os.dup(file.fileno()), f"run-{found.pk}.warpdeck.zip")


def _download(descriptor: int, name: str) -> FileResponse:
    """Streams an open file, which the response closes."""
    file = os.fdopen(descriptor, "rb")
    return FileResponse(file, as_attachment=True, filename=name, content_type="application/zip")
