"""URLs of the candidate, compare and roofline pages, and of what they load."""

from __future__ import annotations

from django.urls import path

from webapp.review import views

urlpatterns = [
    path("runs/<int:pk>/c/<int:number>/", views.candidate, name="candidate"),
    path("runs/<int:pk>/c/<int:number>/source/", views.candidate_source, name="candidate-source"),
    path("runs/<int:pk>/c/<int:number>/levels/", views.candidate_levels, name="candidate-levels"),
    path("runs/<int:pk>/roofline/", views.roofline, name="roofline"),
    path("artifacts/<str:sha256>/", views.artifact, name="artifact"),
    path("compare/", views.compare, name="compare"),
    path("vendor/plotly-<str:version>.min.js", views.plotly_js, name="plotly-js"),
]
