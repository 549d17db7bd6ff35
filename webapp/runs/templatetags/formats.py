"""Template filters for numbers, statuses and verdicts. Built in to every template.

Numbers are formatted by `runner.units`, the one place that knows how; this module only gives those
functions their filter names, and maps closed sets of words to icon, colour class and label.
"""

from __future__ import annotations

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runner import units

register = template.Library()

register.filter("duration_us", units.duration_us)
register.filter("rate_bytes", units.rate_bytes)
register.filter("rate_flops", units.rate_flops)
register.filter("speedup", units.speedup)
register.filter("bytes_iec", units.bytes_iec)
register.filter("seconds", units.seconds)
register.filter("dollars", units.dollars)
register.filter("tokens", units.tokens)

# word → (colour class, icon, label)
CHIPS: dict[str, tuple[str, str, str]] = {
    "queued": ("idle", "◌", "queued"),
    "running": ("run", "◐", "running"),
    "paused": ("warn", "‖", "paused"),
    "finished": ("ok", "✓", "finished"),
    "stopped": ("warn", "■", "stopped"),
    "failed": ("bad", "✕", "failed"),
    "lost": ("warn", "⚠", "lost"),
    "passed": ("ok", "✓", "passed"),
    "unmeasured": ("idle", "○", "unmeasured"),
    "compile_error": ("bad", "✕", "does not compile"),
    "wrong_shape": ("bad", "✕", "wrong shape"),
    "wrong_dtype": ("bad", "✕", "wrong dtype"),
    "wrong_values": ("bad", "✕", "wrong values"),
    "non_finite": ("bad", "✕", "non-finite"),
    "mutated_input": ("suspect", "⚑", "mutated input"),
    "flaky": ("suspect", "⚑", "flaky"),
    "tampered": ("suspect", "⚑", "tampered"),
    "timing_disputed": ("suspect", "⚑", "timing disputed"),
    "impossible": ("suspect", "⚑", "impossible"),
    "timeout": ("bad", "✕", "timeout"),
    "crashed": ("bad", "✕", "crashed"),
    "out_of_memory": ("bad", "✕", "out of memory"),
    "harness_error": ("warn", "⚠", "harness error"),
    "not_judged": ("idle", "○", "not judged"),
    "pending": ("run", "◐", "not judged yet"),
    "faster": ("ok", "▲", "faster"),
    "slower": ("bad", "▼", "slower"),
    "indistinguishable": ("idle", "≈", "indistinguishable"),
    "draft": ("warn", "✎", "draft"),
    "published": ("ok", "✓", "published"),
    "retired": ("idle", "○", "retired"),
}


@register.filter
def chip(word: str) -> SafeString:
    """The chip of a status, verdict or outcome: icon, word and colour together."""
    colour, icon, label = CHIPS.get(str(word), ("idle", "·", str(word)))
    return format_html(
        '<span class="chip {}"><span aria-hidden="true">{}</span> {}</span>', colour, icon, label
    )


@register.filter
def icon(word: str) -> str:
    return CHIPS.get(str(word), ("idle", "·", ""))[1]


@register.filter
def colour(word: str) -> str:
    return CHIPS.get(str(word), ("idle", "·", ""))[0]


@register.filter
def label(word: str) -> str:
    return CHIPS.get(str(word), ("idle", "·", str(word)))[2]
