"""The form of a person's request to a run under way: pause, resume, stop, steer, extend.

What may be asked when is webapp.runs.requests' to judge; this form only maps its words onto fields.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from runner.events import ControlAction
from runner.spec import Budgets, SpecError
from webapp.runs.models import Run
from webapp.runs.overview import Overview

FIELDS = {"wall_clock_s": "minutes"}  # a SpecError's field → ours, where they differ
NUMBER = "Give a number, such as {}."


class AskForm(forms.Form):
    """Bound with a POST; unbound it holds the run's present limits."""

    action = forms.ChoiceField(choices=[(action.value, action.value) for action in ControlAction])
    text = forms.CharField(label="Note to the agent", required=False, strip=True)
    evaluations = forms.IntegerField(
        required=False, error_messages={"invalid": NUMBER.format("40")}
    )
    minutes = forms.FloatField(
        label="Wall clock", required=False, error_messages={"invalid": NUMBER.format("30")}
    )
    tokens = forms.IntegerField(
        required=False, error_messages={"invalid": "Give a whole number, or leave it empty."}
    )
    dollars = forms.FloatField(
        required=False, error_messages={"invalid": "Give a number, or leave it empty."}
    )

    def __init__(
        self, overview: Overview, typed: QueryDict | None = None, action: str = ""
    ) -> None:
        self.overview = overview
        super().__init__(typed, initial={"action": action, **_typed(overview.limits)})

    @property
    def run(self) -> Run:
        return self.overview.run

    @property
    def refusals(self) -> list[str]:
        """Every reason why it was refused, each in one sentence."""
        return [
            f"{self[name].label}: {words}"
            if name in self.fields and name != "action"
            else str(words)
            for name, errors in self.errors.items()
            for words in errors
        ]

    def ask(self, by: str) -> bool:
        """Make the request; False, with `errors`, when it is refused."""
        if not self.is_valid():
            return False
        action = ControlAction(self.cleaned_data["action"])
        try:
            budgets = self._budgets() if action is ControlAction.extend else None
            self.run.ask(action, by, self.cleaned_data["text"], budgets)
        except SpecError as error:
            field = FIELDS.get(error.field, error.field)
            words = f"{error.problem} {error.remedy}"
            if field in self.fields and field != "action":
                self.add_error(field, words)
            else:
                self.add_error(None, words[:1].upper() + words[1:])
            return False
        return True

    def _budgets(self) -> Budgets:
        """The limits as typed; evaluations and wall clock that were left empty stay."""
        now, typed = self.overview.limits, self.cleaned_data
        minutes = typed["minutes"]
        return Budgets(
            evaluations=now.evaluations if typed["evaluations"] is None else typed["evaluations"],
            wall_clock_s=now.wall_clock_s if minutes is None else minutes * 60,
            tokens=typed["tokens"],
            dollars=typed["dollars"],
        )


def _typed(limits: Budgets) -> dict[str, Any]:
    return {
        "evaluations": limits.evaluations,
        "minutes": f"{limits.wall_clock_s / 60:g}",
        "tokens": limits.tokens,
        "dollars": None if limits.dollars is None else f"{limits.dollars:g}",
    }
