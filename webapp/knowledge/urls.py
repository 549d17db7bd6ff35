"""URLs of the knowledge base, and of promoting a candidate into it."""

from __future__ import annotations

from django.urls import path

from webapp.knowledge import views

urlpatterns = [
    path("knowledge/", views.entries, name="knowledge"),
    path("knowledge/<int:pk>/", views.entry, name="entry"),
    path("knowledge/<int:pk>/edit/", views.edit, name="entry-edit"),
    path("knowledge/<int:pk>/publish/", views.publish, name="entry-publish"),
    path("knowledge/<int:pk>/retire/", views.retire, name="entry-retire"),
    path("knowledge/<int:pk>/draft/", views.draft, name="entry-draft"),
    path("runs/<int:pk>/c/<int:number>/promote/", views.promote, name="promote"),
]
