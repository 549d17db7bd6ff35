"""What an analysis or a simulation found, as an agent is told: verdict, findings, resources.

The summary names each kind of finding once, with its source line and what usually fixes it; the
details hold all findings with their evidence.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from runner import examination, units
from runner.analysis.findings import GLOSSARY, FindingKind, Severity
from runner.answers.sources import excerpt
from runner.answers.text import fitted, one_line, plain
from runner.events import AnalysisPayload
from runner.loop import Answer, Loop

KERNELS = 8
KNOWN = "Known already; it was not made again."
_WEIGHT = {Severity.error.value: 0, Severity.warning.value: 1, Severity.info.value: 2}


def report(loop: Loop, found: AnalysisPayload | None, note: str = "") -> Answer:
    """The answer of a tool about an analysis; None stands for one that nobody can make here."""
    parts = [note] if note else []
    if found is None:
        parts.append("Not analysed: this run has no examiner. Evaluation judges without one.")
        return Answer("\n".join(parts))
    parts.append(headline(found))
    if found.verdict == examination.UNAVAILABLE:
        return Answer("\n".join(parts))
    kernels = kernel_lines(found)
    parts += kernels[:KERNELS]
    if len(kernels) > KERNELS:
        parts.append(f"… {len(kernels) - KERNELS} kernels more in the details")
    parts += _launches(found)
    source = loop.source(found.candidate)
    parts += [_kind(source, group) for group in _by_kind(found)]
    if len(found.scope) > 1:  # the last sentence is of the sandbox
        parts.append(f"Scope: {one_line(found.scope[0])}; …")
    return Answer(fitted(parts), _details(found, source))


def headline(found: AnalysisPayload) -> str:
    """`c3 analyze for sm_90 on 2048x4096-bf16: review: the worst finding`."""
    made_for = " ".join(
        filter(None, (found.target and f"for {found.target}", found.case and f"on {found.case}"))
    )
    words = f"c{found.candidate} {found.tool} {made_for}".rstrip() + f": {found.verdict}"
    return f"{words}: {one_line(found.reason)}" if found.reason else words


def kernel_lines(found: AnalysisPayload) -> list[str]:
    """Each kernel with its registers, spills, shared memory and occupancy, one line each."""
    return [f"Kernel {name}: {_listed(used)}" for name, used in _kernels(found).items()]


def _kernels(found: AnalysisPayload) -> dict[str, dict[str, str]]:
    """What each kernel uses; of kernels of one name, the later ones are numbered."""
    used: dict[str, dict[str, str]] = {}
    for each in found.resources.get("kernels", []):
        name = one_line(each["kernel"], 80)
        alike = sum(other.partition(" #")[0] == name for other in used)
        used[f"{name} #{alike + 1}" if alike else name] = usage(each)
    return used


def usage(kernel: dict[str, Any]) -> dict[str, str]:
    """What one kernel uses, by resource."""
    fits = kernel["occupancy"]
    spilled = kernel["spill_store_bytes"] + kernel["spill_load_bytes"]
    shared = kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"]
    waves = kernel["waves"]
    return {
        "registers": str(kernel["registers"]),
        "spilled": units.bytes_iec(spilled) if spilled else "nothing",
        "shared": units.bytes_iec(shared),
        "warps": f"{fits['warps']} ({fits['fraction']:.0%}, limited by {fits['limiter']})",
        "waves": f"{waves[0]['waves']:.2f}" if waves else units.MISSING,
    }


def changes(before: AnalysisPayload, after: AnalysisPayload) -> list[str]:
    """How the kernels of two analyses differ in what they use, and which findings came or went."""
    old, new = _kernels(before), _kernels(after)
    lines = [f"- {name}: {_change(old, new, name)}" for name in {**old, **new}]
    was, now = ({each["kind"] for each in found.findings} for found in (before, after))
    if came := sorted(now - was):
        lines.append(f"- findings that c{before.candidate} has not: {', '.join(came)}")
    if gone := sorted(was - now):
        lines.append(f"- findings that c{after.candidate} has not: {', '.join(gone)}")
    return lines or ["- no kernel was analysed"]


def _change(old: dict[str, dict[str, str]], new: dict[str, dict[str, str]], name: str) -> str:
    if name not in old or name not in new:
        there, side = (old, "first") if name in old else (new, "second")
        return f"only in the {side}: {_listed(there[name])}"
    pairs = ((each, old[name][each], new[name][each]) for each in new[name])
    changed = [f"{each} {was} → {now}" for each, was, now in pairs if was != now]
    return "; ".join(changed) or f"unchanged: {_listed(new[name])}"


def _listed(used: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in used.items())


def _launches(found: AnalysisPayload) -> list[str]:
    """What a simulation ran."""
    return [
        f"Launch {one_line(each['kernel'], 80)}: {each['simulated']:,} of {each['programs']:,}"
        " programs simulated"
        for each in found.resources.get("launches", [])[:KERNELS]
    ]


def _by_kind(found: AnalysisPayload) -> list[list[dict[str, Any]]]:
    """The findings grouped by kind, errors first."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for finding in sorted(found.findings, key=lambda each: _WEIGHT.get(each["severity"], 3)):
        if finding["severity"] == Severity.info and finding["message"] == found.reason:
            continue  # the headline has said it
        groups.setdefault(finding["kind"], []).append(finding)
    return list(groups.values())


def _kind(source: str, group: list[dict[str, Any]]) -> str:
    """The first finding of its kind, and where the others are."""
    first = group[0]
    lines = [f"- {_words(first)}", *_quoted(source, first)]
    if len(group) > 1:
        places = dict.fromkeys(_line(each) for each in group[1:] if _line(each))
        where = f", lines {', '.join(map(str, list(places)[:8]))}" if places else ""
        lines.append(f"  and {len(group) - 1} more of this kind{where}")
    return "\n".join([*lines, *_remedy(first)])


def _words(finding: dict[str, Any]) -> str:
    place = f" line {_line(finding)}" if _line(finding) else ""
    kernel = f" in {one_line(finding['kernel'], 80)}" if finding.get("kernel") else ""
    message = one_line(finding["message"], 500)
    return f"{finding['severity']} {finding['kind']}{place}{kernel}: {message}"


def _line(finding: dict[str, Any]) -> int:
    place = finding.get("source")
    return place["line"] if place else 0


def _quoted(source: str, finding: dict[str, Any]) -> list[str]:
    return [quoted] if (quoted := excerpt(source, _line(finding))) else []


def _remedy(finding: dict[str, Any]) -> list[str]:
    kind = finding["kind"]
    known = kind in FindingKind.__members__
    return [f"  remedy: {GLOSSARY[FindingKind(kind)].remedy}"] if known else []


def _details(found: AnalysisPayload, source: str) -> str:
    """Every kernel, every finding with its evidence, then the whole scope."""
    parts = ["\n".join(kernel_lines(found))]
    for finding in found.findings:
        lines = [_words(finding), *_quoted(source, finding), *_remedy(finding)]
        parts.append("\n".join([*lines, *_evidence(finding.get("evidence", {}))]))
    parts.append("\n".join(f"scope: {plain(sentence)}" for sentence in found.scope))
    return "\n\n".join(part for part in parts if part)


def _evidence(evidence: dict[str, Any]) -> Iterable[str]:
    """One line a value; the steps of a counterexample one by one."""
    for name, value in evidence.items():
        if isinstance(value, list) and all(isinstance(each, str) for each in value):
            yield f"  {name}:"
            yield from (f"    {plain(each)}" for each in value)
        else:
            yield f"  {name}: {plain(json.dumps(value, ensure_ascii=False, default=str))}"
