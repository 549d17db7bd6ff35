"""The map of the site. Each app owns its own urls module; names are global and unique."""

from __future__ import annotations

from django.urls import include, path
from django.views.generic import RedirectView

from webapp.accounts import views as accounts

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="runs"), name="root"),
    path("sign-in/", accounts.sign_in, name="sign-in"),
    path("sign-in/<str:token>/", accounts.sign_in_link, name="sign-in-link"),
    path("sign-out/", accounts.sign_out, name="sign-out"),
    path("", include("webapp.runs.urls")),
    path("", include("webapp.review.urls")),
    path("", include("webapp.knowledge.urls")),
    path("", include("webapp.fleet.urls")),
    path("", include("webapp.api.urls")),
]
