"""The findings of an analysis as a page may show them, read from what a log says.

A log may be another version's or a stranger's, so nothing here insists: what is missing is empty,
what has another form is left out. Words are those of runner.analysis.findings; no HTML is made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from runner.analysis.findings import GLOSSARY, Meaning, Severity

MAX_SHOWN = 50
MAX_STEPS = 200  # of one counterexample
MAX_LINE = 10_000_000
GRAVITY = (Severity.error, Severity.warning, Severity.info)
_NOTHING = Meaning("", "")
_MEANINGS = {kind.value: meaning for kind, meaning in GLOSSARY.items()}
_SEVERITIES = {severity.value: severity for severity in Severity}


@dataclass(frozen=True)
class ShownFinding:
    """One finding. `line` is of the candidate's source; `steps` lead to it, `evidence` the rest."""

    kind: str
    severity: Severity
    message: str
    line: int | None
    level: str
    kernel: str
    meaning: str
    remedy: str
    assumed: tuple[tuple[str, str], ...]
    steps: tuple[str, ...]
    evidence: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Count:
    severity: Severity
    count: int


def read_findings(found: Iterable[dict[str, Any]]) -> tuple[ShownFinding, ...]:
    """The gravest first, else in the order of the log; at most MAX_SHOWN of them."""
    shown = [_shown(each) for each in found if isinstance(each, dict)]
    return tuple(gravest_first(shown)[:MAX_SHOWN])


def gravest_first(findings: Iterable[ShownFinding]) -> list[ShownFinding]:
    return sorted(findings, key=lambda each: GRAVITY.index(each.severity))


def counted(findings: Iterable[ShownFinding]) -> tuple[Count, ...]:
    """How many there are of each severity, the gravest first."""
    counts = Counter(each.severity for each in findings)
    return tuple(Count(severity, counts[severity]) for severity in GRAVITY if counts[severity])


def line_of(source: Any) -> int | None:
    """The line that a finding's or a resource's JSON names; None for anything else."""
    line = source.get("line") if isinstance(source, dict) else source
    usable = isinstance(line, int) and not isinstance(line, bool) and 0 < line < MAX_LINE
    return line if usable else None


def _shown(found: dict[str, Any]) -> ShownFinding:
    kind, evidence = _text(found.get("kind")), found.get("evidence")
    evidence = evidence if isinstance(evidence, dict) else {}
    meaning = _MEANINGS.get(kind, _NOTHING)
    return ShownFinding(
        kind=kind,
        severity=_severity(found.get("severity")),
        message=_text(found.get("message")),
        line=line_of(found.get("source")),
        level=_text(found.get("level")),
        kernel=_text(found.get("kernel")),
        meaning=meaning.meaning,
        remedy=meaning.remedy,
        assumed=_pairs(evidence.get("assumed")),
        steps=_steps(evidence.get("steps")),
        evidence=_pairs({k: v for k, v in evidence.items() if k not in ("assumed", "steps")}),
    )


def _severity(word: Any) -> Severity:
    """What says nothing of its gravity is a note."""
    return _SEVERITIES.get(_text(word), Severity.info)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _steps(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value[:MAX_STEPS])) if isinstance(value, list) else ()


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        return ()
    return tuple((name, str(each)) for name, each in list(value.items())[:MAX_STEPS])
