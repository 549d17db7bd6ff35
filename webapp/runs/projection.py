"""What the rows say because of an event: Run columns and Candidate rows, and nothing else.

One function for the live log and for imports, so that an imported run looks as it did where it
ran. Applied inside the caller's transaction; Run columns are changed on the instance and the
caller saves them.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from runner.events import (
    CandidatePayload,
    ControlPayload,
    EvaluationPayload,
    Event,
    RunPayload,
    RunStatus,
    ToolResultPayload,
)
from runner.wire import canonical, to_json
from webapp.runs.models import Candidate, Run

RUN_FIELDS = (
    "status",
    "reason",
    "started_at",
    "ended_at",
    "evaluations",
    "best",
    "fruitless_starts",
    "requests_taken",
)


PROGRESS = (CandidatePayload, EvaluationPayload, ToolResultPayload)


class ProjectionError(ValueError):
    """An event contradicts the log before it, such as an evaluation of an unknown candidate."""


def apply(run: Run, event: Event) -> Any:
    """Bring the rows up to `event`; returns its decoded payload."""
    payload = event.decoded
    if event.seq == 1 and not (isinstance(payload, RunPayload) and payload.spec):
        raise ProjectionError("the first event of a run must hold its spec")
    if isinstance(payload, RunPayload):
        _apply_status(run, payload, datetime.fromisoformat(event.at))
    elif isinstance(payload, CandidatePayload):
        _create_candidate(run, payload, event.seq)
    elif isinstance(payload, EvaluationPayload):
        _apply_evaluation(run, payload, event.seq)
    elif isinstance(payload, ControlPayload):
        run.requests_taken = max(run.requests_taken, payload.request)
    if isinstance(payload, PROGRESS):
        run.fruitless_starts = 0
    return payload


def _apply_status(run: Run, payload: RunPayload, at: datetime) -> None:
    run.status = payload.status.value
    run.reason = payload.reason
    if payload.status is RunStatus.running and run.started_at is None:
        run.started_at = at
    run.ended_at = at if payload.status.ended else None


def _create_candidate(run: Run, payload: CandidatePayload, seq: int) -> None:
    parent = None
    if payload.parent is not None:
        parent = run.candidates.filter(number=payload.parent).only("pk").first()
        if parent is None:
            raise ProjectionError(
                f"candidate {payload.number} names parent {payload.parent}, which is not there"
            )
    if run.candidates.filter(number=payload.number).exists():
        raise ProjectionError(f"candidate {payload.number} appears twice")
    Candidate.objects.create(
        run=run,
        number=payload.number,
        parent=parent,
        language=payload.language,
        idea=payload.idea,
        author=payload.author,
        source_sha256=payload.source_sha256,
        seq=seq,
    )


def _apply_evaluation(run: Run, payload: EvaluationPayload, seq: int) -> None:
    evaluation = payload.evaluation
    candidate = run.candidates.filter(number=payload.candidate)
    if payload.scope:  # of part of what counts: it is used up, and ranks nobody
        known = candidate.exists()
    else:
        low, high = evaluation.ci95 or (None, None)
        changed = candidate.filter(evaluation_seq=None).update(
            evaluation_seq=seq,
            verdict=evaluation.verdict.value,
            reason=evaluation.reason,
            speedup=evaluation.speedup,
            ci_low=low,
            ci_high=high,
            evaluation_text=canonical(to_json(evaluation)),
        )
        known = changed == 1
    if not known:
        raise ProjectionError(f"candidate {payload.candidate} is not there or was evaluated before")
    run.evaluations += 1
    champion = run.best.evaluation if run.best else None
    if not payload.scope and evaluation.better_than(champion):
        run.best = candidate.get()
