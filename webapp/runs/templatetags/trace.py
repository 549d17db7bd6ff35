"""Filters for what a run page shows of untrusted text and of evaluations.

Text of agents is shown whole but never raw: control and direction marks become visible signs, long
text is folded with its length said. Escaping stays Django's; nothing here returns safe HTML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

from django import template
from django.template.defaultfilters import filesizeformat

from kernels.catalog import Case
from runner import units
from runner.events import RunStatus
from runner.integrity import MEANINGS, Meaning
from runner.results import CaseResult, CheckStatus, Evaluation, IntegrityCheck, Outcome, Timing
from webapp.runs import prose
from webapp.runs.models import Candidate, Run
from webapp.runs.overview import Overview
from webapp.runs.provenance import Fact, facts, further_details
from webapp.runs.templatetags.formats import label

register = template.Library()
AnyCase = TypeVar("AnyCase", Case, CaseResult)

SHOWN_LINES = 12  # of a text before the rest is folded
LINE_CHARACTERS = 60  # a text without line ends is cut after this many for each shown line
FOLDED_CHARACTERS = 32 * 1024  # of the rest, in the page; what is longer is a link away

GRAVITY = (CheckStatus.failed, CheckStatus.not_judged, CheckStatus.passed)

# Controls but tab and newline, direction marks, zero-width marks, line separators, and halves of
# characters, which no encoding can write.
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff"
    "\ud800-\udfff]"
)


@register.filter
def visible(text: str) -> str:
    """The text with every invisible or direction-changing character shown as a sign."""
    return _INVISIBLE.sub(_sign, str(text).replace("\r\n", "\n"))


def _sign(match: re.Match[str]) -> str:
    code = ord(match.group())
    return chr(0x2400 + code) if code < 0x20 else f"⟦U+{code:04X}⟧"


@register.inclusion_tag("runs/_fold.html")
def fold(
    text: str,
    whole_url: str = "",
    pre: bool = False,
    open: bool = False,
    lines: int = SHOWN_LINES,
) -> dict[str, Any]:
    """A text, its first lines shown and the rest folded; `whole_url` leads to what is too long."""
    text = visible(text).strip("\n")
    return {**_parts(text, _cut(text, lines)), "whole_url": whole_url, "pre": pre, "open": open}


@register.inclusion_tag("runs/_fold.html")
def say(text: str, whole_url: str = "", lines: int = SHOWN_LINES) -> dict[str, Any]:
    """The same for what an agent says, with the little of Markdown that runs.prose knows."""
    text = visible(text).strip("\n")
    parts = _parts(text, prose.outside_code(text, _cut(text, lines)))
    found = {f"{name}_blocks": prose.blocks(parts[name]) for name in ("head", "rest")}
    return {**parts, **found, "whole_url": whole_url, "prose": True}


def _parts(text: str, cut: int) -> dict[str, Any]:
    rest = text[cut:]
    withheld = rest[FOLDED_CHARACTERS:]
    return {
        "head": text[:cut],
        "rest": rest[:FOLDED_CHARACTERS],
        "rest_lines": rest.count("\n"),
        "rest_size": filesizeformat(len(rest.encode())),
        "withheld": filesizeformat(len(withheld.encode())) if withheld else "",
    }


def _cut(text: str, shown: int) -> int:
    """Where to fold: after the shown lines, else at a space near the limit; never for a word."""
    characters = LINE_CHARACTERS * shown
    if len(text) <= characters * 1.2 and text.count("\n") <= shown * 1.2:
        return len(text)
    cut = min(len(text), characters)
    lines = [match.start() for match in re.finditer("\n", text[:cut])][:shown]
    if len(lines) == shown:
        return lines[-1]
    space = max(text.rfind(" ", 0, cut), text.rfind("\n", 0, cut))
    return space if space > cut // 2 else cut


@register.filter
def baseline(evaluation: Evaluation | None) -> str:
    """The names of the baselines that the scored cases were timed against."""
    if evaluation is None:
        return ""
    names = [case.timing.baseline for case in evaluation.scored if case.timing]
    return visible(", ".join(dict.fromkeys(names)))


@register.filter
def outcome(evaluation: Evaluation) -> str:
    """Faster, slower or indistinguishable: does the interval of the aggregate exclude 1.0?"""
    if evaluation.ci95 is None:
        return ""
    low, high = evaluation.ci95
    if low > 1:
        return Outcome.faster.value
    return Outcome.slower.value if high < 1 else Outcome.indistinguishable.value


@register.filter
def interval(ci95: tuple[float, float] | None) -> str:
    """`1.90–1.95`; a dash where nothing was measured."""
    return units.interval(ci95)


@register.filter
def provenance(evaluation: Evaluation | None, case: CaseResult | None = None) -> str:
    """What a number's hover says: device, baseline, timer, samples, source hash."""
    if evaluation is None:
        return ""
    samples = [c.timing.samples for c in ([case] if case else evaluation.scored) if c.timing]
    parts = [
        f"device {evaluation.device.model} ({evaluation.device.name})",
        f"baseline {baseline(evaluation)}",
        f"timer {evaluation.timer}",
        f"{sum(samples)} interleaved pairs" if samples else "not timed",
        f"source {evaluation.source_sha256[:12]}",
    ]
    if case and case.timing and (words := launch(case.timing)):
        parts.append(words)
    if case:
        rates = (
            f"{units.rate_bytes(case.bytes_per_second)}, {units.rate_flops(case.flops_per_second)}"
        )
        parts.append(f"useful {rates}")
    return visible("\n".join(parts))


@register.filter
def check_counts(evaluation: Evaluation) -> list[tuple[CheckStatus, int]]:
    """How many checks ended in which status, the gravest first; statuses of none are left out."""
    ended = [check.status for check in evaluation.integrity]
    return [(status, ended.count(status)) for status in GRAVITY if status in ended]


@register.filter
def gravest_first(checks: Sequence[IntegrityCheck]) -> list[IntegrityCheck]:
    return sorted(checks, key=lambda check: GRAVITY.index(check.status))


@register.filter
def unmade_checks(evaluation: Evaluation) -> list[Meaning]:
    """The checks we know that this evaluation did not make."""
    made = {check.check for check in evaluation.integrity}
    return [meaning for name, meaning in MEANINGS.items() if name not in made]


@register.filter
def launch(timing: Timing) -> str:
    """`device 140 µs · launch 9.80 µs`; empty where launching is not told apart from the work."""
    return units.launch(timing.median_us, timing.launch_us)


@register.filter
def provenance_facts(evaluation: Evaluation) -> list[Fact]:
    return facts(evaluation)


register.filter("further_details", further_details)


@register.filter
def shown_status(run: Run) -> str:
    """The word of the status chip: a running run whose driver went silent is `lost`."""
    return "lost" if run.lost else run.status


@register.filter
def shown_verdict(candidate: Candidate, run: Run) -> str:
    """The verdict, else `pending` while somebody may still give one."""
    if candidate.verdict:
        return candidate.verdict
    return "unmeasured" if run.state.ended else "pending"


@register.filter
def verdict_so_far(candidate: Candidate, overview: Overview) -> str:
    """The same, but what a check of it found is more than nothing."""
    tried = overview.ledger.trials.get(candidate.number)
    return (
        tried.value if tried and not candidate.verdict else shown_verdict(candidate, overview.run)
    )


SHORT = {
    "compile_error": "no compile",
    "wrong_shape": "wrong",
    "wrong_dtype": "wrong",
    "wrong_values": "wrong",
    "mutated_input": "mutates",
    "timing_disputed": "disputed",
    "out_of_memory": "memory",
    "harness_error": "harness",
}


@register.filter
def short_label(verdict: str) -> str:
    """The verdict where there is room for a word; the whole one is in the hover."""
    return SHORT.get(verdict) or label(verdict)


@register.filter
def run_word(status: str) -> str:
    """How a line of the trace says that a run came to this status."""
    return "under way" if status == RunStatus.running else label(status)


@register.filter
def unscored(cases: Sequence[AnyCase]) -> list[AnyCase]:
    return [case for case in cases if not case.scored]


@register.filter
def scored_first(cases: Sequence[CaseResult]) -> list[CaseResult]:
    return sorted(cases, key=lambda case: not case.scored)


@register.filter
def percent_of(used: float, limit: float) -> str:
    """For a bar's width: `38%`, never beyond 100%."""
    return f"{min(100.0, 100.0 * used / limit):.1f}%" if limit else "0%"


@register.filter
def flop_count(flops: int) -> str:
    """A count of operations, as `42 MFLOP`."""
    return units.rate_flops(flops).removesuffix("/s")


@register.filter
def intensity(case: Case) -> str:
    """FLOP per byte of the case's useful work."""
    return units.significant(case.flops / case.bytes_moved) if case.bytes_moved else units.MISSING


@register.filter
def line_count(text: str) -> int:
    return len(text.splitlines())


@register.filter
def percent(share: float) -> str:
    return f"{share:.0%}"


@register.filter
def goal(ratio: float) -> str:
    """A speedup somebody asked for, as it was typed: `1.5×`."""
    return f"{ratio:g}×"


@register.filter
def words(name: str) -> str:
    """`fresh_inputs` as people write it."""
    return name.replace("_", " ")
