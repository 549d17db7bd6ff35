"""Writes the first draft of an entry from what was measured, so that nobody has to copy numbers.

Every sentence is made of facts of one evaluation and of the problem's contract; a person then edits
it. What was not tested is said as plainly as what was.
"""

from __future__ import annotations

import json
from typing import Any

from kernels.catalog import Problem
from runner import units
from runner.results import CaseResult, Evaluation, Outcome, Verdict
from runner.spec import device_kind
from runner.wire import to_json
from webapp.knowledge.models import MAX_CLAIM, Entry, EntryError
from webapp.review.dossier import Constant, Dossier, constants_between
from webapp.runs.models import Candidate, Event

NAMED = 4  # constants and cases that a claim names; more would hide the finding


def draft_of(candidate: Candidate) -> Entry:
    """An unsaved entry. Raises EntryError when there is nothing measured to stand on."""
    dossier = Dossier(candidate)
    evaluation = require_measured(candidate, dossier.evaluation)
    changed = changed_constants(dossier)
    return Entry(
        title=claim(dossier, evaluation, changed)[:MAX_CLAIM],
        mechanism=mechanism(candidate, changed),
        problem=candidate.run.problem,
        language=candidate.language,
        device_kind=evaluation.device.kind or device_kind(candidate.run.device),
        device_scope=device_scope(evaluation),
        versions_scope=versions_scope(evaluation),
        shapes_scope=shapes_scope(evaluation),
        not_tested=not_tested(evaluation, dossier.problem),
        kernel=dossier.payload.kernel if dossier.payload else "",
        constants=dossier.payload.constants if dossier.payload else {},
        candidate=candidate,
        evidence=evidence(dossier, evaluation),
        speedup=evaluation.speedup,
    )


def require_measured(candidate: Candidate, evaluation: Evaluation | None) -> Evaluation:
    if evaluation is None:
        raise EntryError(
            "candidate",
            f"c{candidate.number} was not evaluated.",
            "Wait for its evaluation; a claim needs a measurement.",
        )
    if evaluation.verdict is not Verdict.passed:
        raise EntryError(
            "candidate",
            f"c{candidate.number} did not pass: its verdict is {evaluation.verdict}.",
            "Only a candidate that passes every check can carry a claim.",
        )
    if evaluation.speedup is None or evaluation.ci95 is None:
        raise EntryError(
            "candidate",
            f"c{candidate.number} passed but was not timed on every scored case.",
            "Evaluate it on a device and case set with scored cases.",
        )
    return evaluation


def changed_constants(dossier: Dossier) -> list[Constant]:
    """What differs from the run's first candidate; all constants when they cannot be compared."""
    own, first = dossier.payload, dossier.payloads.get(dossier.first.pk)
    comparable = own and first and own.kernel == first.kernel
    rows = constants_between(first if comparable else None, own, dossier.problem)
    return [row for row in rows if row.changed]


def claim(dossier: Dossier, evaluation: Evaluation, changed: list[Constant]) -> str:
    """One sentence: where, with what, how much faster over what, on what."""
    kernel = dossier.payload.kernel if dossier.payload else ""
    setting = ", ".join(f"{row.name}={row.value}" for row in changed[:NAMED])
    if len(changed) > NAMED:
        setting += f" and {len(changed) - NAMED} more"
    what = f"{kernel or 'the kernel'} with {setting}" if setting else kernel or "the kernel"
    return (
        f"{dossier.run.problem} on {evaluation.device.model}: {what} {_effect(evaluation)}"
        f" on {_listed([case.case for case in evaluation.scored])}."
    )


def _effect(evaluation: Evaluation) -> str:
    """`runs 1.93× (95% 1.90–1.95) over torch`, in words that fit the interval."""
    low, high = evaluation.ci95 or (0.0, 0.0)
    baselines = dict.fromkeys(case.timing.baseline for case in evaluation.scored if case.timing)
    figure = f"{units.speedup(evaluation.speedup)} (95% {units.interval((low, high))})"
    names = " and ".join(baselines)
    if outcome_of(low, high) is Outcome.faster:
        return f"runs {figure} over {names}"
    if outcome_of(low, high) is Outcome.slower:
        return f"is slower than {names}: {figure}"
    return f"cannot be told from {names} in speed: {figure}"


def outcome_of(low: float, high: float) -> Outcome:
    if low > 1:
        return Outcome.faster
    return Outcome.slower if high < 1 else Outcome.indistinguishable


def _listed(names: list[str]) -> str:
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} more cases"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def mechanism(candidate: Candidate, changed: list[Constant]) -> str:
    """The author's idea, then what the contract says of each constant that was changed."""
    lines = [candidate.idea.strip()]
    for row in changed:
        move = f"{row.name} {row.before} → {row.value}" if row.before is not None else row.name
        if row.why:
            lines.append(f"{move}: {row.why}.")
    return "\n\n".join(lines)


def device_scope(evaluation: Evaluation) -> str:
    device = evaluation.device
    wanted = ("cores", "architecture", "caches", "memory", "driver", "compute capability")
    details = [f"{name} {device.details[name]}" for name in wanted if device.details.get(name)]
    return ", ".join([f"{device.model} ({device.kind})", *details])


def versions_scope(evaluation: Evaluation) -> str:
    """Short ones first: a compiler's flags would push the rest out of sight."""
    items = sorted(evaluation.versions.items(), key=lambda item: len(item[1]))
    return ", ".join(f"{name} {version}" for name, version in items)


def shapes_scope(evaluation: Evaluation) -> str:
    timed = [case.case for case in evaluation.scored]
    checked = [case.case for case in evaluation.cases if not case.scored]
    dtypes = ", ".join(dict.fromkeys(case.dtype for case in evaluation.cases))
    lines = [f"Data types: {dtypes}.", f"Timed: {', '.join(timed)}."]
    if checked:
        lines.append(f"Checked, not timed: {', '.join(checked)}.")
    return "\n".join(lines)


def not_tested(evaluation: Evaluation, problem: Problem | None) -> str:
    """What the contract holds that this evaluation did not touch."""
    lines = [f"Any device but {evaluation.device.model}; any other load on it."]
    if problem is None:
        return lines[0]
    ran = {case.case for case in evaluation.cases}
    dtypes = {case.dtype for case in evaluation.cases}
    if missing := [dtype for dtype in problem.tolerances if dtype not in dtypes]:
        lines.append(f"Data types: {', '.join(missing)}.")
    if cases := [case.name for case in problem.cases if case.name not in ran]:
        lines.append(f"Cases of the contract: {', '.join(cases)}.")
    lines.append("Speed on any shape that is not named as timed.")
    return "\n".join(lines)


def evidence(dossier: Dossier, evaluation: Evaluation) -> dict[str, Any]:
    """A frozen copy of the measurement; it stays when the run is gone."""
    return {
        "run": dossier.run.pk,
        "run_uuid": dossier.run.uuid,
        "candidate": dossier.candidate.number,
        "parent": dossier.parent.number if dossier.parent else None,
        "measured_at": _measured_at(dossier.candidate),
        "speedup": evaluation.speedup,
        "ci95": list(evaluation.ci95 or ()),
        "baselines": list(dict.fromkeys(c.timing.baseline for c in evaluation.scored if c.timing)),
        "cases": [_case_evidence(case) for case in evaluation.scored],
        "checks_passed": sum(check.passed for check in evaluation.integrity),
        "checks": len(evaluation.integrity),
        "device": to_json(evaluation.device),
        "timer": evaluation.timer,
        "isolation": evaluation.isolation,
        "versions": dict(evaluation.versions),
        "source_sha256": evaluation.source_sha256,
    }


def _case_evidence(case: CaseResult) -> dict[str, Any]:
    timing = case.timing
    if timing is None:
        raise ValueError(f"case {case.case} has no timing to freeze")
    return {
        "case": case.case,
        "dtype": case.dtype,
        "baseline": timing.baseline,
        "median_us": timing.median_us,
        "baseline_us": timing.baseline_us,
        "speedup": timing.speedup,
        "ci95": list(timing.ci95),
        "outcome": timing.outcome.value,
        "samples": timing.samples,
    }


def _measured_at(candidate: Candidate) -> str | None:
    """When the evaluation entered the log; None when that event is not here."""
    events = Event.objects.filter(run=candidate.run_id)
    event = events.filter(seq=candidate.evaluation_seq or 0).first()
    return json.loads(event.body)["at"] if event else None
