"""Coming in by a one-time link, and going out."""

from __future__ import annotations

from django.contrib.auth import login, logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from webapp.accounts.models import SignInLink

BACKEND = "django.contrib.auth.backends.ModelBackend"


@login_not_required
@require_GET
@never_cache
def sign_in(request: HttpRequest) -> HttpResponse:
    """Says how to get a link; there is nothing to type here."""
    if request.user.is_authenticated:
        return redirect("runs")
    return render(request, "sign_in.html")


@login_not_required
@require_GET
@never_cache
def sign_in_link(request: HttpRequest, token: str) -> HttpResponse:
    user = SignInLink.objects.redeem(token)
    if user is None:
        return render(request, "sign_in.html", {"refused": True}, status=410)
    login(request, user, backend=BACKEND)  # type: ignore[arg-type]
    target = request.GET.get("next", "")
    if url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        return redirect(target)
    return redirect("runs")


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    logout(request)
    return redirect("sign-in")
