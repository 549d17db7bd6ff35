"""Filters for analyses: their verdicts and severities as icon, word and colour, and their numbers.

Everything shown is untrusted: text goes through Django's escaping, nothing here lets HTML pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runner.analysis.findings import Severity
from runner.events import AnalysisPayload
from webapp.review.analyses import Analysed
from webapp.review.resources import Row
from webapp.runs.templatetags.trace import visible

register = template.Library()
Value = TypeVar("Value")

# word → (colour class, icon, label)
VERDICTS = {
    "clean": ("ok", "✓", "clean"),
    "review": ("warn", "⚠", "review"),
    "incomplete": ("idle", "◑", "incomplete"),
    "error": ("bad", "✕", "error"),
    "unavailable": ("idle", "○", "unavailable"),
}
SEVERITIES = {
    Severity.error: ("bad", "✕", "error"),
    Severity.warning: ("warn", "⚠", "warning"),
    Severity.info: ("idle", "•", "note"),
}
OUTCOMES = {"better": ("ok", "▲", "better"), "worse": ("bad", "▼", "worse")}
TOOLS = {"analyze": "Analysis", "simulate": "Simulation"}
MEANINGS = {
    "clean": "all that the scope names was looked at, and nothing is wrong",
    "review": "there is a finding to look at",
    "incomplete": "something was not looked at",
    "error": "the candidate itself does not load, compile or run",
    "unavailable": "nothing on the host can analyse it",
}


@register.filter
def analysed(payload: AnalysisPayload) -> Analysed:
    """The payload of an event, ready to be shown."""
    return Analysed(0, payload)


@register.filter
def verdict_chip(word: str) -> SafeString:
    colour, icon, label = VERDICTS.get(word, ("idle", "·", visible(word)[:60]))
    return format_html(
        '<span class="chip {}" title="{}"><span aria-hidden="true">{}</span> {}</span>',
        colour,
        MEANINGS.get(word, ""),
        icon,
        label,
    )


@register.filter
def severity_icon(severity: Severity) -> str:
    return SEVERITIES[severity][1]


@register.filter
def severity_word(severity: Severity) -> str:
    return SEVERITIES[severity][2]


@register.filter
def severity_colour(severity: Severity) -> str:
    return SEVERITIES[severity][0]


@register.filter
def tool_name(tool: str) -> str:
    return TOOLS.get(tool, visible(tool)[:40])


@register.filter
def words(kind: str) -> str:
    """`register_spill` as people write it."""
    return visible(kind).replace("_", " ")[:60]


@register.filter
def outcome_mark(row: Row) -> SafeString | str:
    """`▲ better` or `▼ worse`; empty where nobody can say which way is better."""
    if row.outcome not in OUTCOMES:
        return ""
    colour, icon, label = OUTCOMES[row.outcome]
    return format_html(
        '<span class="bare {}"><span aria-hidden="true">{}</span> {}</span>', colour, icon, label
    )


@register.filter
def outcome_colour(row: Row) -> str:
    return OUTCOMES.get(row.outcome, ("idle", "", ""))[0]


@register.filter
def at(mapping: Mapping[int, Value], key: int) -> Value | None:
    return mapping.get(key)
