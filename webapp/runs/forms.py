"""The launch form: what a person asks for, checked by the same rules as everywhere else.

Ranges and combinations are RunSpec's to judge; this form only maps its words onto fields, and
adds what only the web knows: whether anybody serves the device now.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.http import QueryDict

from kernels.catalog import Problem, load_problem, slugs
from runner.spec import AGENTS, LANGUAGES, Budgets, Hint, RunSpec, SpecError, device_kind
from webapp.fleet.models import Device, Worker
from webapp.knowledge.models import Entry
from webapp.runs.costs import Cost, cost
from webapp.runs.models import Run

# RunSpec's field → ours, where they differ. The language follows from the device.
FIELDS = {"wall_clock_s": "minutes", "language": "device", "workflow": "agent"}
NUMBER = "Give a whole number, such as 24."


class DeviceChoice:
    """A device one may pick: its name, and in words what it is and whether anybody serves it."""

    def __init__(self, name: str, row: Device | None) -> None:
        self.name = name
        self.row = row
        self.live = row is not None and row.is_live

    @property
    def label(self) -> str:
        model = self.row.info.model if self.row and self.row.info else ""
        state = "live" if self.live else "no worker serves it now"
        return " · ".join(part for part in (self.name, model, state) if part)


class LaunchForm(forms.Form):
    """Bound on POST; on GET its initial values come from the address."""

    problem = forms.ChoiceField()
    device = forms.ChoiceField()
    case_set = forms.ChoiceField(label="Case set")
    agent = forms.ChoiceField()
    goal_speedup = forms.FloatField(
        label="Goal",
        required=False,
        error_messages={
            "invalid": "Give a number such as 1.5, or leave it empty to use the whole budget."
        },
    )
    evaluations = forms.IntegerField(
        error_messages={"invalid": NUMBER, "required": f"It is empty. {NUMBER}"}
    )
    minutes = forms.FloatField(
        label="Wall clock",
        error_messages={
            "invalid": "Give the minutes as a number, such as 15.",
            "required": "It is empty. Give the minutes as a number, such as 15.",
        },
    )
    seed = forms.IntegerField(
        min_value=0,
        max_value=2**31 - 1,
        error_messages={"invalid": "Give a whole number, such as 0.", "required": "Give 0."},
    )
    use_knowledge = forms.BooleanField(required=False)
    queue_anyway = forms.BooleanField(required=False)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name, values in (
            ("problem", [(slug, slug) for slug in slugs()]),
            ("device", [(choice.name, choice.label) for choice in self.devices]),
            ("agent", [(name, name) for name in AGENTS]),
        ):
            self._offer(name, values)
        self._offer("case_set", [(name, name) for name in self.case_sets])

    @classmethod
    def preset(cls, query: QueryDict) -> LaunchForm:
        """Unbound, holding what the address says, and the defaults for what it leaves out."""
        typed: dict[str, Any] = {name: query[name] for name in cls.base_fields if name in query}
        if "evaluations" in query:  # the whole form came back: an absent box is an unticked one
            typed |= {box: box in query for box in ("use_knowledge", "queue_anyway")}
        return cls(initial=cls.defaults() | typed)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """What the form holds before anybody typed."""
        budgets = Budgets()
        live = Device.objects.live().order_by("name").first()
        return {
            "problem": "softmax" if "softmax" in slugs() else next(iter(slugs()), ""),
            "device": live.name if live else "host",
            "agent": AGENTS[0],
            "evaluations": budgets.evaluations,
            "minutes": f"{budgets.wall_clock_s / 60:g}",
            "seed": 0,
            "use_knowledge": True,
        }

    def _offer(self, name: str, choices: list[tuple[str, str]]) -> None:
        field = self.fields[name]
        assert isinstance(field, forms.ChoiceField)
        field.choices = choices
        offered = ", ".join(value for value, _ in choices)
        field.error_messages["invalid_choice"] = (
            f"“%(value)s” is not offered. Use one of: {offered}."
        )
        field.error_messages["required"] = f"Choose one of: {offered}."

    def value(self, name: str) -> str:
        """What is typed or preset now, valid or not."""
        return str(self[name].value() or "")

    @cached_property
    def devices(self) -> list[DeviceChoice]:
        """Every device ever served; the host too, so that a fresh installation can queue."""
        rows = {row.name: row for row in Device.objects.all()}
        names = sorted({"host", *rows}, key=lambda n: (not (n in rows and rows[n].is_live), n))
        return [DeviceChoice(name, rows.get(name)) for name in names]

    @property
    def chosen_device(self) -> DeviceChoice | None:
        return next((c for c in self.devices if c.name == self.value("device")), None)

    @property
    def kind(self) -> str:
        try:
            return device_kind(self.value("device"))
        except SpecError:
            return "host"

    @cached_property
    def chosen_problem(self) -> Problem | None:
        slug = self.value("problem")
        return load_problem(slug) if slug in slugs() else None

    @property
    def case_sets(self) -> list[str]:
        return self.chosen_problem.case_sets(self.kind) if self.chosen_problem else []

    @property
    def cases(self) -> tuple[Any, ...]:
        """Of the chosen set, else of the first that fits the device."""
        name = self.value("case_set")
        name = name if name in self.case_sets else next(iter(self.case_sets), "")
        return self.chosen_problem.cases_in(name) if self.chosen_problem and name else ()

    @cached_property
    def known(self) -> tuple[Hint, ...]:
        return Entry.objects.hints_for(self.value("problem"), self.kind)

    @cached_property
    def agents_live(self) -> bool:
        return Worker.objects.driving().exists()

    @property
    def unserved(self) -> str:
        """Why a run launched now would wait, or nothing."""
        if self.chosen_device is not None and not self.chosen_device.live:
            return f"No worker serves {self.chosen_device.name} now."
        return "" if self.agents_live else "No worker that drives agents is up now."

    @cached_property
    def cost(self) -> Cost:
        name = self.value("case_set") or next(iter(self.case_sets), "")
        return cost(self.value("problem"), self.value("device"), name)

    @property
    def estimate_s(self) -> float | None:
        """Seconds for all evaluations of the budget, as measured before."""
        text = self.value("evaluations")
        return self.cost.of(int(text)) if text.isdigit() else None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if not self.errors:
            try:
                cleaned["spec"] = self._spec(cleaned)
                cleaned["spec"].validate()
            except SpecError as error:
                self.add_error(FIELDS.get(error.field, error.field), _words(error))
        if "device" in cleaned and self.unserved and not cleaned["queue_anyway"]:
            self.add_error(
                "device",
                f"{self.unserved} Start one with “python manage.py up”, "
                "or tick “queue anyway”: the run then waits for it.",
            )
        return cleaned

    def _spec(self, cleaned: dict[str, Any]) -> RunSpec:
        return RunSpec(
            problem=cleaned["problem"],
            device=cleaned["device"],
            case_set=cleaned["case_set"],
            language=LANGUAGES[device_kind(cleaned["device"])],
            agent=cleaned["agent"],
            goal_speedup=cleaned["goal_speedup"],
            seed=cleaned["seed"],
            budgets=Budgets(cleaned["evaluations"], cleaned["minutes"] * 60),
            hints=self.known if cleaned["use_knowledge"] else (),
        )

    @transaction.atomic
    def save(self, user: AbstractBaseUser) -> Run:
        """The run, queued; a worker is told once it is committed."""
        return Run.objects.launch(self.cleaned_data["spec"], user)


def _words(error: SpecError) -> str:
    if error.field == "wall_clock_s":
        return "The wall clock must lie between 1 second and 7 days. Give minutes, such as 15."
    return f"{error.problem} {error.remedy}"
