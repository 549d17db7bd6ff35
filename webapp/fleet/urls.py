"""Routes of the fleet page."""

from __future__ import annotations

from django.urls import path

from webapp.fleet import views

urlpatterns = [path("fleet/", views.fleet, name="fleet")]
