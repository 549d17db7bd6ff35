"""`manage.py sign_in_link`: print a one-time link for the local admin."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from webapp.accounts.models import SignInLink, local_admin


class Command(BaseCommand):
    help = "Print a link that signs the local admin in once, within 24 hours."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--address", help="of the web; default: where `up` runs it now")

    def handle(self, *args: Any, **options: Any) -> None:
        address = (options["address"] or _running_at()).rstrip("/")
        self.stdout.write(f"{address}/sign-in/{SignInLink.objects.issue(local_admin())}/")


def _running_at() -> str:
    try:
        return (settings.DATA / "web.url").read_text().strip()
    except OSError:
        raise CommandError(
            "Warpdeck does not run on this data folder. Start it: python manage.py up. "
            "Or give its address: --address http://127.0.0.1:8000"
        ) from None
