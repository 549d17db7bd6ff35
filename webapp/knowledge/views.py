"""The knowledge pages and promotion. Views parse, call one form or model method, and render."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from webapp.knowledge.drafting import draft_of
from webapp.knowledge.forms import EntryForm
from webapp.knowledge.history import History
from webapp.knowledge.models import Entry, EntryError
from webapp.runs.models import Candidate

ENTRIES_PER_PAGE = 50
STATUSES = ["draft", "published", "retired", "all"]


@require_GET
def entries(request: HttpRequest) -> HttpResponse:
    search, problem = request.GET.get("q", "").strip(), request.GET.get("problem", "")
    status = request.GET.get("status", "")
    found = Entry.objects.for_list(search, problem, status)
    context = {
        "nav": "knowledge",
        "page": Paginator(found, ENTRIES_PER_PAGE).get_page(request.GET.get("page")),
        "search": search,
        "problem": problem,
        "status": status,
        "statuses": STATUSES,
        "problems": Entry.objects.order_by("problem").values_list("problem", flat=True).distinct(),
        "filtered": bool(search or problem or status),
    }
    return render(request, "knowledge/list.html", context)


@require_GET
def entry(request: HttpRequest, pk: int) -> HttpResponse:
    rows = Entry.objects.select_related("candidate__run", "created_by", "published_by")
    found = get_object_or_404(rows, pk=pk)
    context = {"nav": "knowledge", "entry": found, "history": History(found)}
    return render(request, "knowledge/entry.html", context)


@require_http_methods(["GET", "POST"])
def edit(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Entry, pk=pk)
    if request.method == "POST":
        form = EntryForm(request.POST, instance=found)
        if form.is_valid() and form.save_edit(_person(request)):
            messages.success(request, "Saved.")
            return redirect("entry", pk)
    else:
        form = EntryForm(instance=found, initial={"seen": found.last_revision})
    context = {"nav": "knowledge", "entry": get_object_or_404(Entry, pk=pk), "form": form}
    return render(request, "knowledge/edit.html", context, status=422 if form.errors else 200)


@require_http_methods(["GET", "POST"])
def promote(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    rows = Candidate.objects.select_related("run", "parent")
    candidate = get_object_or_404(rows, run_id=pk, number=number)
    context = {"nav": "knowledge", "candidate": candidate, "run": candidate.run}
    try:
        draft = draft_of(candidate)
    except EntryError as error:
        refused = {**context, "refusal": str(error)}
        return render(request, "knowledge/promote.html", refused, status=409)
    form = EntryForm(request.POST if request.method == "POST" else None, instance=draft)
    if request.method == "POST" and form.is_valid():
        messages.success(request, "Draft saved. Read it once more, then publish it.")
        return redirect(form.save_draft(_person(request)))
    context |= {"form": form, "draft": draft, "earlier": candidate.entries.order_by("pk")}
    return render(request, "knowledge/promote.html", context, status=422 if form.errors else 200)


@require_POST
def publish(request: HttpRequest, pk: int) -> HttpResponse:
    said = "Published. New runs on this problem are offered it as a start."
    return _move(request, pk, Entry.Status.PUBLISHED, said)


@require_POST
def retire(request: HttpRequest, pk: int) -> HttpResponse:
    return _move(request, pk, Entry.Status.RETIRED, "Retired. No new run reads it; it stays here.")


@require_POST
def draft(request: HttpRequest, pk: int) -> HttpResponse:
    return _move(request, pk, Entry.Status.DRAFT, "Back to draft. No new run reads it for now.")


def _person(request: HttpRequest) -> User:
    """Whoever answers for the change; the middleware lets nobody else come this far."""
    if not isinstance(request.user, User):
        raise PermissionDenied
    return request.user


def _move(request: HttpRequest, pk: int, status: Entry.Status, said: str) -> HttpResponse:
    found = get_object_or_404(Entry, pk=pk)
    try:
        if found.move_to(status, _person(request)):
            messages.success(request, said)
        else:
            messages.info(request, f"It was {status.value} already.")
    except EntryError as error:
        messages.error(request, str(error), extra_tags="bad")
        return redirect("entry-edit", pk)
    return redirect(found)
