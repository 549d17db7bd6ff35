"""The map of the site. Each app owns its own urls module; names are global and unique."""

from __future__ import annotations

from importlib.util import find_spec

from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView

from webapp.accounts import views as accounts

APPS = ("webapp.runs", "webapp.review", "webapp.knowledge", "webapp.fleet")

urlpatterns: list[URLPattern | URLResolver] = [
    path("", RedirectView.as_view(pattern_name="runs"), name="root"),
    path("sign-in/", accounts.sign_in, name="sign-in"),
    path("sign-in/<str:token>/", accounts.sign_in_link, name="sign-in-link"),
    path("sign-out/", accounts.sign_out, name="sign-out"),
]
urlpatterns += [path("", include(f"{app}.urls")) for app in APPS if find_spec(f"{app}.urls")]
