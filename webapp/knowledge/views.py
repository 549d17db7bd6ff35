"""The knowledge pages and promotion. Views parse, call one form or model method, and render."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST

from webapp.knowledge.models import Entry
from webapp.runs.models import Candidate


def entries(request: HttpRequest) -> HttpResponse:
    rows = Entry.objects.for_list(request.GET.get("q", ""))
    return render(request, "knowledge/list.html", {"nav": "knowledge", "entries": rows})


def entry(request: HttpRequest, pk: int) -> HttpResponse:
    row = get_object_or_404(Entry, pk=pk)
    return render(request, "knowledge/entry.html", {"nav": "knowledge", "entry": row})


def edit(request: HttpRequest, pk: int) -> HttpResponse:
    return redirect(get_object_or_404(Entry, pk=pk))


@require_POST
def publish(request: HttpRequest, pk: int) -> HttpResponse:
    return redirect(get_object_or_404(Entry, pk=pk))


@require_POST
def retire(request: HttpRequest, pk: int) -> HttpResponse:
    return redirect(get_object_or_404(Entry, pk=pk))


@require_POST
def draft(request: HttpRequest, pk: int) -> HttpResponse:
    return redirect(get_object_or_404(Entry, pk=pk))


def promote(request: HttpRequest, pk: int, number: int) -> HttpResponse:
    row = get_object_or_404(Candidate.objects.select_related("run"), run_id=pk, number=number)
    return render(request, "knowledge/promote.html", {"nav": "knowledge", "candidate": row})
