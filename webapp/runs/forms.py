"""The launch form: what a person asks for, checked by the same rules as everywhere else.

Ranges and combinations are RunSpec's to judge; this form only maps its words onto fields, and
adds what only the web knows: whether anybody serves the device now.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django import forms
from django.contrib.auth.models import AbstractBaseUser
from django.db import transaction
from django.http import QueryDict

from kernels.catalog import Problem, load_problem, slugs
from runner import workflows
from runner.messages import pricing
from runner.spec import (
    AGENTS,
    LANGUAGES,
    MODEL_AGENT,
    OUTSIDE,
    WORKFLOWS,
    AgentSpec,
    Budgets,
    Hint,
    RunSpec,
    SpecError,
    device_kind,
)
from webapp.fleet.models import Device, Worker
from webapp.knowledge.models import Entry
from webapp.runs.costs import Cost, cost
from webapp.runs.models import Run

# RunSpec's field → ours, where they differ. The language follows from the device.
FIELDS = {"wall_clock_s": "minutes", "language": "device"}
NUMBER = "Give a whole number, such as 24."
TALK_MINUTES = 60.0  # of a run whose agent talks, unless told otherwise
MODEL_DOLLARS = 5.0
LINES = {
    "search": "explores the problem's tuning space and explains each move; costs nothing.",
    "claude": "a language model that writes, analyses and measures kernels of its own.",
    "external": "your own coding agent; the run's page says how it connects.",
}


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


@dataclass(frozen=True)
class Choice:
    """An agent or a workflow one may pick, in one line what it is.

    `missing` says why no live worker would take it up, or nothing.
    """

    name: str
    title: str
    line: str
    missing: str = ""


class LaunchForm(forms.Form):
    """Bound on POST; on GET its initial values come from the address."""

    problem = forms.ChoiceField()
    device = forms.ChoiceField()
    case_set = forms.ChoiceField(label="Case set")
    agent = forms.ChoiceField()
    workflow = forms.ChoiceField()
    model = forms.ChoiceField(required=False)
    effort = forms.ChoiceField(required=False)
    partner = forms.ChoiceField(label="Second agent", required=False)
    partner_model = forms.ChoiceField(label="Its model", required=False)
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
    tokens = forms.IntegerField(
        required=False,
        error_messages={"invalid": "Give a whole number such as 2000000, or leave it empty."},
    )
    dollars = forms.FloatField(
        required=False,
        error_messages={"invalid": "Give a number such as 5, or leave it empty."},
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
            ("workflow", [(name, workflows.get(name).TITLE) for name in WORKFLOWS]),
            ("model", self.models),
            ("effort", [(name, name) for name in pricing.EFFORTS]),
            ("partner", [("", "–"), *((name, name) for name in AGENTS if name != OUTSIDE)]),
            ("partner_model", self.models),
        ):
            self._offer(name, values)
        self._offer("case_set", [(name, name) for name in self.case_sets])

    @classmethod
    def preset(cls, query: QueryDict) -> LaunchForm:
        """Unbound, holding what the address says, and the defaults for what it leaves out."""
        typed: dict[str, Any] = {name: query[name] for name in cls.base_fields if name in query}
        if "evaluations" in query:  # the whole form came back: an absent box is an unticked one
            typed |= {box: box in query for box in ("use_knowledge", "queue_anyway")}
        defaults = cls.defaults()
        if typed.get("agent", "search") != "search":
            defaults["minutes"] = f"{TALK_MINUTES:g}"
        return cls(initial=defaults | typed)

    @classmethod
    def defaults(cls) -> dict[str, Any]:
        """What the form holds before anybody typed."""
        budgets = Budgets()
        live = Device.objects.live().order_by("name").first()
        return {
            "problem": "softmax" if "softmax" in slugs() else next(iter(slugs()), ""),
            "device": live.name if live else "host",
            "agent": "search",
            "workflow": "goal",
            "model": pricing.DEFAULT_MODEL,
            "effort": pricing.DEFAULT_EFFORT,
            "partner_model": pricing.DEFAULT_MODEL,
            "evaluations": budgets.evaluations,
            "minutes": f"{budgets.wall_clock_s / 60:g}",
            "dollars": f"{MODEL_DOLLARS:g}",
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
    def models(self) -> list[tuple[str, str]]:
        """Those with a price, and what they are called; none where the prices are unreadable."""
        if self.price_fault:
            return []
        return [(model.name, model.title) for model in pricing.models().values()]

    @cached_property
    def price_fault(self) -> str:
        """What is wrong with the operator's price list, or nothing."""
        try:
            pricing.models()
        except SpecError as error:
            return str(error)
        return ""

    @cached_property
    def prices(self) -> list[pricing.Model]:
        """Of the models that the run would ask, each once."""
        asked = [self.value("model")] if self.value("agent") == MODEL_AGENT else []
        if self.takes_two and self.value("partner") == MODEL_AGENT:
            asked.append(self.value("partner_model"))
        known = {name: pricing.find(name) for name in asked} if self.models else {}
        return [model for model in known.values() if model is not None]

    @property
    def takes_two(self) -> bool:
        """True if the chosen workflow has a second agent."""
        return self.value("workflow") in self.two_player_workflows

    @property
    def two_player_workflows(self) -> list[str]:
        return [name for name in WORKFLOWS if workflows.get(name).PLAYERS == 2]

    @cached_property
    def agents(self) -> list[Choice]:
        offer = Worker.objects.offer()
        known = [name for name in LINES if name in AGENTS]
        names = dict.fromkeys([*known, *AGENTS])
        missing = {}
        if self.agents_live:  # if not, that is said of all of them at once
            why = {name: offer.lacking.get(name) or "no worker offers it" for name in names}
            missing = {name: why[name] for name in names if name not in offer.agents}
        return [Choice(name, name, LINES.get(name, ""), missing.get(name, "")) for name in names]

    @property
    def workflows(self) -> list[Choice]:
        titles = {name: workflows.get(name).TITLE.partition(": ") for name in WORKFLOWS}
        names = dict.fromkeys(["goal", *WORKFLOWS])
        return [Choice(name, titles[name][0], f"{titles[name][2]}.") for name in names]

    @property
    def usual_minutes(self) -> dict[str, str]:
        """Of an agent that talks, and of a search."""
        return {"talk": f"{TALK_MINUTES:g}", "search": f"{Budgets().wall_clock_s / 60:g}"}

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
        """What does not apply to the agents and the workflow chosen is left out, typed or not."""
        first = self._player(cleaned["agent"], cleaned["model"])
        partner = None
        if self.takes_two and cleaned["partner"]:
            partner = self._player(cleaned["partner"], cleaned["partner_model"])
        asks = MODEL_AGENT in (first.agent, partner.agent if partner else "")
        return RunSpec(
            problem=cleaned["problem"],
            device=cleaned["device"],
            case_set=cleaned["case_set"],
            language=LANGUAGES[device_kind(cleaned["device"])],
            agent=first.agent,
            workflow=cleaned["workflow"],
            goal_speedup=cleaned["goal_speedup"],
            seed=cleaned["seed"],
            budgets=Budgets(
                cleaned["evaluations"],
                cleaned["minutes"] * 60,
                tokens=cleaned["tokens"] if asks else None,
                dollars=cleaned["dollars"] if asks else None,
            ),
            hints=self.known if cleaned["use_knowledge"] else (),
            model=first.model,
            effort=first.effort,
            partner=partner,
        )

    def _player(self, agent: str, model: str) -> AgentSpec:
        if agent != MODEL_AGENT:
            return AgentSpec(agent)
        return AgentSpec(agent, model, self.cleaned_data["effort"])

    @transaction.atomic
    def save(self, user: AbstractBaseUser) -> Run:
        """The run, queued; a worker is told once it is committed."""
        return Run.objects.launch(self.cleaned_data["spec"], user)


def _words(error: SpecError) -> str:
    if error.field == "wall_clock_s":
        return "The wall clock must lie between 1 second and 7 days. Give minutes, such as 15."
    return f"{error.problem} {error.remedy}"
