"""The fleet page: which devices and workers are there, and what they are doing."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render


def fleet(request: HttpRequest) -> HttpResponse:
    return render(request, "fleet/fleet.html", {"nav": "fleet"})
