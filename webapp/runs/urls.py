"""The addresses of runs and their events, and of problems."""

from __future__ import annotations

from django.urls import path

from webapp.runs import problems, views

urlpatterns = [
    path("runs/", views.runs, name="runs"),
    path("runs/new/", views.launch, name="launch"),
    path("runs/import/", views.import_run, name="runs-import"),
    path("runs/<int:pk>/", views.run, name="run"),
    path("runs/<int:pk>/ask/", views.ask, name="run-ask"),
    path("runs/<int:pk>/events/", views.events, name="run-events"),
    path("runs/<int:pk>/events/<int:seq>/", views.event, name="run-event"),
    path("runs/<int:pk>/panel/", views.panel, name="run-panel"),
    path("runs/<int:pk>/export/", views.export, name="run-export"),
    path("problems/", problems.problems, name="problems"),
    path("problems/<slug:slug>/", problems.problem, name="problem"),
]
