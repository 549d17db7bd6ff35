"""The Django project; importing it makes the Celery app that tasks bind to."""

from webapp.celery import app as celery_app

__all__ = ["celery_app"]
