"""`manage.py import_run FILE`: bring in a run made elsewhere."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from runner.bundle import ArchiveError
from webapp.accounts.models import local_admin
from webapp.runs.archives import import_archive


class Command(BaseCommand):
    help = "Import a run archive (*.warpdeck.zip)."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)  # nothing may have run here yet
        try:
            imported = import_archive(options["file"], local_admin())
        except (ArchiveError, OSError) as error:
            raise CommandError(str(error)) from error
        run = imported.run
        if imported.created:
            self.stdout.write(f"imported as run {run.pk}: {run.problem}, {run.last_seq} events")
        else:
            self.stdout.write(f"this run is here already, as run {run.pk}; nothing was changed")
