"""Filters for what agents and people say: tool calls and their answers, usage, requests.

Everything here is text for a template to escape. What invisible characters look like is trace.py's.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from django import template

from runner import units
from runner.events import ArtifactRef, ControlAction, Usage
from runner.spec import AgentSpec, Budgets
from webapp.runs.templatetags.trace import visible

register = template.Library()

SHORT_CHARACTERS = 90  # of an argument that stands in the line of its call

REQUESTS: dict[str, str] = {
    ControlAction.stop: "stop",
    ControlAction.pause: "pause",
    ControlAction.resume: "go on",
    ControlAction.steer: "steering note",
    ControlAction.extend: "larger budget",
}


@dataclass(frozen=True)
class Argument:
    """One argument of a call. `text` is a string as it is, anything else as JSON."""

    name: str
    text: str
    short: bool


@dataclass(frozen=True)
class Refusal:
    """A structured error of a tool, as the agent was told it."""

    field: str
    problem: str
    remedy: str


@register.filter
def arguments(named: dict[str, Any]) -> list[Argument]:
    """The short ones first, for they stand in the line of the call."""
    made = [_argument(name, value) for name, value in named.items()]
    return sorted(made, key=lambda argument: not argument.short)


def _argument(name: str, value: Any) -> Argument:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    short = len(text) <= SHORT_CHARACTERS and "\n" not in text
    return Argument(name, text, short)


@register.filter
def refusal(text: str) -> Refusal | None:
    """The fields of a structured error; None for any other text."""
    try:
        error = json.loads(text)["error"]
        return Refusal(*(str(error[name]) for name in ("field", "problem", "remedy")))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


@register.filter
def named(artifacts: Sequence[ArtifactRef], name: str) -> ArtifactRef | None:
    """The artifact of that name."""
    return next((ref for ref in artifacts if ref.name == name), None)


@register.filter
def model_name(model: str) -> str:
    """A model as people call it: without its maker, who is the same for all of them."""
    return visible(model).removeprefix("claude-")[:60]


@register.filter
def used(usage: Usage) -> str:
    """`opus-5-5 · 12.4k tokens in, 91% from cache · 812 out · $0.031`."""
    read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    cached = f", {usage.cache_read_tokens / read:.0%} from cache" if usage.cache_read_tokens else ""
    price = "price not known" if usage.dollars is None else units.dollars(usage.dollars)
    return (
        f"{model_name(usage.model)} · {units.tokens(read)} tokens in{cached}"
        f" · {units.tokens(usage.output_tokens)} out · {price}"
    )


@register.filter
def together(players: Sequence[AgentSpec]) -> str:
    """`claude, opus-5-5 and claude, haiku-5-5, medium effort`: no defaults, nothing twice."""
    efforts = {player.effort for player in players}
    shared = efforts.pop() if len(efforts) == 1 else ""
    names = [_player(replace(each, effort="") if shared else each) for each in players]
    return visible(" and ".join(names) + (f", {shared} effort" if shared else ""))


def _player(agent: AgentSpec) -> str:
    effort = f"{agent.effort} effort" if agent.effort else ""
    parts = (agent.agent, model_name(agent.model) if agent.model else "", effort)
    return ", ".join(part for part in parts if part)


@register.filter
def limits(budgets: Budgets) -> str:
    """`40 evaluations, 30 min, 2.00M tokens, $10.00`: the limits that there are."""
    parts = [f"{budgets.evaluations:,} evaluations", units.seconds(budgets.wall_clock_s)]
    if budgets.tokens is not None:
        parts.append(f"{units.tokens(budgets.tokens)} tokens")
    if budgets.dollars is not None:
        parts.append(units.dollars(budgets.dollars))
    return ", ".join(parts)


@register.filter
def request_word(action: str) -> str:
    """What a person asked for, as a noun phrase."""
    return REQUESTS.get(action, str(action))


@register.filter
def scope_words(scope: str) -> str:
    """What an evaluation of a narrower scope looked at; empty for a whole one."""
    kind, _, case = scope.partition(" ")
    if kind == "check" and not case:
        return "check only, not timed"
    if kind == "case":
        return f"case {visible(case)[:80]} only"
    return visible(scope)[:80]
