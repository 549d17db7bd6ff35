"""The address for people who connect an outside agent. The agent's own is webapp.api.endpoint."""

from __future__ import annotations

from django.urls import path

from webapp.api import views

urlpatterns = [
    path("runs/<int:pk>/connect/", views.connect, name="run-connect"),
]
