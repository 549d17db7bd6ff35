from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from webapp.runs.models import Run


@pytest.mark.django_db
def test_the_migrations_make_the_tables_that_the_models_describe() -> None:
    call_command("makemigrations", check=True, dry_run=True, stdout=io.StringIO())
    call_command("check", stdout=io.StringIO(), stderr=io.StringIO())


@pytest.mark.django_db(transaction=True)
def test_a_stop_that_was_asked_for_before_requests_had_rows_is_still_asked_for() -> None:
    executor = MigrationExecutor(connection)
    newest = executor.loader.graph.leaf_nodes()
    try:
        executor.migrate([("runs", "0002_events_by_type")])
        old = executor.loader.project_state(("runs", "0002_events_by_type")).apps
        runs = old.get_model("runs", "Run").objects
        runs.create(problem="softmax", spec_text="{}", device="host", stop_requested_by="ada")
        runs.create(problem="softmax", spec_text="{}", device="host")
    finally:
        executor = MigrationExecutor(connection)
        executor.migrate(newest)

    stopped, other = Run.objects.order_by("pk")
    assert stopped.stop_requested_by == "ada"
    assert [request.number for request in stopped.pending_requests] == [1]
    assert not other.requests.exists()
