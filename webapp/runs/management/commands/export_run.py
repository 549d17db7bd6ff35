"""`manage.py export_run RUN -o FILE`: write a run's archive."""

from __future__ import annotations

from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser

from runner.bundle import ArchiveError
from webapp.runs.archives import export_archive
from webapp.runs.models import Run
from webapp.runs.store import MissingArtifact


class Command(BaseCommand):
    help = "Export a run as an archive; the same run always gives the same bytes."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number or uuid")
        parser.add_argument("-o", "--output", required=True, help="where to write *.warpdeck.zip")

    def handle(self, *args: Any, **options: Any) -> None:
        call_command("migrate", verbosity=0, interactive=False)  # nothing may have run here yet
        name = options["run"]
        key = {"pk": int(name)} if name.isdecimal() else {"uuid": name}
        run = Run.objects.filter(**key).first()
        if run is None:
            raise CommandError(f"run: there is no run {name}. Its number is in its address.")
        try:
            export_archive(run, options["output"])
        except (ArchiveError, MissingArtifact, OSError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"run {run.pk} written to {options['output']}")
