"""`manage.py up`: Warpdeck on one machine, from one terminal, until Ctrl-C."""

from __future__ import annotations

import os
import signal
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError

from runner import keys, sandbox
from runner.events import RunStatus
from runner.spec import Budgets, RunSpec, SpecError
from runner.wire import canonical, to_json
from webapp.accounts.models import SignInLink, local_admin
from webapp.fleet import preflight
from webapp.fleet.machine import Machine, NotReady, Stopped
from webapp.fleet.valkey import NoValkey
from webapp.runs.models import Run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEMO = RunSpec("softmax", budgets=Budgets(evaluations=28, wall_clock_s=150.0))


class Command(BaseCommand):
    help = "Start web, workers and an embedded Valkey; prints a one-time sign-in link."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
        parser.add_argument("--port", type=int, default=8000, help="port to listen on")
        parser.add_argument("--demo", action="store_true", help="launch a softmax run on the host")
        parser.add_argument("--run", nargs="+", default=[], metavar="PROBLEM", help="launch runs")

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        specs = [RunSpec(problem) for problem in options["run"]]
        try:
            for spec in specs:
                spec.validate()
            preflight.check_folder(settings.DATA)
            with preflight.lock_folder(settings.DATA):
                preflight.check_address(host, port)
                if url := os.environ.get("REDIS_URL"):
                    preflight.check_broker(url)
                if keys.present():
                    sandbox.seal(True)  # a candidate that escapes must not read them here
                for warning in (*preflight.device_warnings(), *preflight.agent_warnings()):
                    self._say(f"note: {warning}")
                self._run(Machine(host, port, self._say), specs, options["demo"])
        except (preflight.Refused, SpecError, NoValkey, NotReady) as error:
            raise CommandError(str(error)) from error
        except DatabaseError as error:
            raise CommandError(f"the database cannot be used: {error}") from error

    def _run(self, machine: Machine, specs: list[RunSpec], demo: bool) -> None:
        def stop(*_: Any) -> None:
            machine.stopping = True

        for number in SIGNALS:
            signal.signal(number, stop)
        self._say(f"Warpdeck starts in {settings.DATA}")
        try:
            machine.start_broker()
            call_command("migrate", verbosity=0, interactive=False)
            machine.start_programs()
            machine.await_ready()
            self._welcome(machine, specs, demo)
            machine.watch()
        except Stopped:
            self._say("stopping …")
        finally:
            machine.stop()
        self._say("Warpdeck has stopped; nothing of it is left running")

    def _welcome(self, machine: Machine, specs: list[RunSpec], demo: bool) -> None:
        admin = local_admin()
        runs = [Run.objects.launch(spec, admin) for spec in specs]
        if demo:
            runs.append(demo_run() or Run.objects.launch(DEMO, admin))
        token = SignInLink.objects.issue(admin)
        target = f"?next={runs[-1].get_absolute_url()}" if runs else ""
        self._say("Warpdeck is ready. Sign in, once, within 24 hours:")
        self._say(f"  {machine.address}/sign-in/{token}/{target}")
        for run in runs:
            self._say(f"{run.problem} run {run.pk}, {run.status}:")
            self._say(f"  {machine.address}{run.get_absolute_url()}")
        self._say(f"Logs are in {settings.DATA / 'logs'}. Ctrl-C stops everything.")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()


def demo_run() -> Run | None:
    """The demo run of an earlier start, unless it failed: one is enough."""
    ours = Run.objects.filter(spec_text=canonical(to_json(DEMO)), imported=False)
    return ours.exclude(status=RunStatus.failed).order_by("-pk").first()
