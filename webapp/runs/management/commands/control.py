"""`manage.py control RUN ACTION`: pause, resume, stop, steer or extend a run under way."""

from __future__ import annotations

import getpass
from dataclasses import replace
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from runner.events import ControlAction
from runner.spec import Budgets, SpecError
from webapp.runs import requests
from webapp.runs.models import Run

HELP = {
    ControlAction.stop: "end the run; an evaluation under way is given up",
    ControlAction.pause: "wait, after the step under way, until somebody resumes the run",
    ControlAction.resume: "go on with a paused run",
    ControlAction.steer: "tell the agent something before its next turn",
    ControlAction.extend: "change the budgets that are named; the others stay",
}


class Command(BaseCommand):
    help = "Ask a run under way for something; it takes effect at its next step."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("run", help="the run's number or uuid")
        parser.add_argument("--by", default=getpass.getuser(), help="who asks, for the log")
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        for action in ControlAction:
            options = actions.add_parser(action.value, help=HELP[action])
            if action is ControlAction.steer:
                options.add_argument("text", nargs="+", help="the note")
            if action is ControlAction.extend:
                options.add_argument("--evaluations", type=int, help="how many in all")
                options.add_argument("--minutes", type=float, help="of work in all")
                options.add_argument("--tokens", type=_limit(int), help="in all, or none")
                options.add_argument("--dollars", type=_limit(float), help="in all, or none")

    def handle(self, *args: Any, **options: Any) -> None:
        name, action = options["run"], ControlAction(options["action"])
        key = {"pk": int(name)} if name.isdecimal() else {"uuid": name}
        run = Run.objects.filter(**key).first()
        if run is None:
            raise CommandError(f"run: there is no run {name}. Its number is in its address.")
        text = " ".join(options.get("text") or [])
        try:
            budgets = _budgets(run, options) if action is ControlAction.extend else None
            request = run.ask(action, options["by"], text, budgets)
        except SpecError as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"run {run.pk}: request {request.number}, {action}, by {request.by}")


def _budgets(run: Run, options: dict[str, Any]) -> Budgets:
    given = {name: options[name] for name in ("evaluations", "tokens", "dollars")}
    if options["minutes"] is not None:
        given["wall_clock_s"] = options["minutes"] * 60
    changes = {name: value for name, value in given.items() if value is not None}
    unlimited = {name: None for name, value in changes.items() if value == NONE}
    return replace(requests.limits(run), **(changes | unlimited))


NONE = "none"


def _limit(number: type) -> Any:
    """A number, or `none` for no limit."""

    def parse(text: str) -> Any:
        return NONE if text == NONE else number(text)

    parse.__name__ = number.__name__  # what argparse calls it in an error
    return parse
