"""The event log: an append-only, densely numbered record of a run, and the one truth about it.

Types are a closed set; each has one payload class here and one template in the web. Payloads are
small: source, reports and transcripts travel as content-addressed artifacts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from runner.results import Ceiling, Evaluation
from runner.spec import Budgets, RunSpec
from runner.wire import from_json, to_json


class EventType(StrEnum):
    run = "run"
    message = "message"
    tool_call = "tool_call"
    tool_result = "tool_result"
    candidate = "candidate"
    analysis = "analysis"
    evaluation = "evaluation"
    profile = "profile"
    note = "note"
    control = "control"
    budget = "budget"
    harness_error = "harness_error"


class RunStatus(StrEnum):
    """Where a run stands. `queued` waits for a worker, with its reason shown."""

    queued = "queued"
    running = "running"
    finished = "finished"
    stopped = "stopped"
    failed = "failed"

    @property
    def ended(self) -> bool:
        return self in (RunStatus.finished, RunStatus.stopped, RunStatus.failed)


@dataclass(frozen=True)
class RunPayload:
    """Lifecycle: `status` after this event and why. `spec` only on the first event of a run.

    `ceilings` are the device's roofs, on the first event at which they were known: an archive that
    is read elsewhere can then still be held against the device it was measured on.
    """

    status: RunStatus
    reason: str
    spec: RunSpec | None = None
    ceilings: tuple[Ceiling, ...] = ()


@dataclass(frozen=True)
class MessagePayload:
    """What an agent says, whole; `author` is the agent's name."""

    author: str
    text: str


@dataclass(frozen=True)
class ToolCallPayload:
    call: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolResultPayload:
    call: str
    ok: bool
    text: str


@dataclass(frozen=True)
class CandidatePayload:
    """`number` counts from 1 within the run; `source_sha256` is one of the event's artifacts.

    `constants` are the tuning values the source was written with; `kernel` the zoo kernel, if any.
    """

    number: int
    parent: int | None
    language: str
    idea: str
    author: str
    source_sha256: str
    kernel: str = ""
    constants: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class AnalysisPayload:
    candidate: int
    verdict: str
    findings: tuple[dict[str, Any], ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class EvaluationPayload:
    candidate: int
    evaluation: Evaluation


@dataclass(frozen=True)
class ProfilePayload:
    candidate: int
    profiler: str
    available: bool
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NotePayload:
    author: str
    text: str


@dataclass(frozen=True)
class ControlPayload:
    """A person's request: `action` is `stop` (later also pause, resume, steer)."""

    action: str
    by: str
    text: str = ""


@dataclass(frozen=True)
class BudgetPayload:
    """What is used so far, beside its limit."""

    evaluations: int
    wall_clock_s: float
    limits: Budgets


@dataclass(frozen=True)
class HarnessErrorPayload:
    """A defect of ours. `where` names the step, `error` the exception; `traceback` is capped."""

    where: str
    error: str
    traceback: str = ""


PAYLOADS: dict[EventType, type] = {
    EventType.run: RunPayload,
    EventType.message: MessagePayload,
    EventType.tool_call: ToolCallPayload,
    EventType.tool_result: ToolResultPayload,
    EventType.candidate: CandidatePayload,
    EventType.analysis: AnalysisPayload,
    EventType.evaluation: EvaluationPayload,
    EventType.profile: ProfilePayload,
    EventType.note: NotePayload,
    EventType.control: ControlPayload,
    EventType.budget: BudgetPayload,
    EventType.harness_error: HarnessErrorPayload,
}
TYPES = {payload: event_type for event_type, payload in PAYLOADS.items()}


@dataclass(frozen=True)
class ArtifactRef:
    """A blob in content-addressed storage, named for people by `name` within its event."""

    name: str
    sha256: str
    size: int


@dataclass(frozen=True)
class Event:
    """One row of the log. `seq` counts from 1 with no gaps; `at` is UTC, ISO 8601, microseconds.

    `payload` is plain JSON; `Event.decoded` builds its payload class.
    """

    run: str
    seq: int
    at: str
    type: EventType
    payload: dict[str, Any]
    artifacts: tuple[ArtifactRef, ...] = ()

    @property
    def decoded(self) -> Any:
        return from_json(PAYLOADS[self.type], self.payload, self.type.value)


class Sink(Protocol):
    """Where a driver writes. The sink numbers, stamps and stores; one writer per run."""

    def emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> Event:
        """Append one event; `artifacts` maps names to contents. Raises if the lease is lost."""
        ...


def artifact_ref(name: str, content: bytes) -> ArtifactRef:
    return ArtifactRef(name, hashlib.sha256(content).hexdigest(), len(content))


def make_event(
    run: str, seq: int, at: str, payload: Any, artifacts: Mapping[str, bytes] | None = None
) -> Event:
    """The event for a payload object; its type follows from the payload's class."""
    refs = tuple(artifact_ref(name, content) for name, content in (artifacts or {}).items())
    return Event(run, seq, at, TYPES[type(payload)], to_json(payload), refs)
