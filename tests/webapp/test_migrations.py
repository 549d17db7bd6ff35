from __future__ import annotations

import io

import pytest
from django.core.management import call_command


@pytest.mark.django_db
def test_the_migrations_make_the_tables_that_the_models_describe() -> None:
    call_command("makemigrations", check=True, dry_run=True, stdout=io.StringIO())
    call_command("check", stdout=io.StringIO(), stderr=io.StringIO())
