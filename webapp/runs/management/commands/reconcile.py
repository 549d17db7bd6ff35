"""`manage.py reconcile`: keeps putting right what dead processes left behind."""

from __future__ import annotations

import logging
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.db import DatabaseError, connection

from webapp.runs.reconciler import PERIOD_S, reconcile

logger = logging.getLogger(__name__)


class Command(BaseCommand):
    help = "Hand on runs and jobs whose worker died, and say on queued runs what they wait for."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--once", action="store_true", help="one pass, then exit")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["once"]:
            reconcile()
            return
        done = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: done.set())
        while not done.is_set():
            try:
                reconcile()
            except DatabaseError as error:
                logger.warning("reconcile: %s", error)
                connection.close()
            done.wait(PERIOD_S)
