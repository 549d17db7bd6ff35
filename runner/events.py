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

from runner import keys
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
    """Where a run stands. `queued` waits for a worker, with its reason; `paused` for a person."""

    queued = "queued"
    running = "running"
    paused = "paused"
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


class MessageKind(StrEnum):
    """Who speaks to whom. A `brief` opens a fresh context: an agent sees nothing from before it.

    `said`: an agent's own turn. `nudge`: the harness to the agent. `notice`: the harness to people
    alone, such as why nothing happens. `summary`: the closing words of a run.
    """

    said = "said"
    brief = "brief"
    nudge = "nudge"
    notice = "notice"
    summary = "summary"


@dataclass(frozen=True)
class Usage:
    """What one request to a model used. `input_tokens` leaves out what the cache was asked for.

    `dollars` is None where the price of the model is not known.
    """

    model: str
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    dollars: float | None = None

    @property
    def tokens(self) -> int:
        """All tokens, whatever they cost: what a budget of tokens counts."""
        cached = self.cache_read_tokens + self.cache_write_tokens
        return self.input_tokens + self.output_tokens + cached

    @property
    def context_tokens(self) -> int:
        """How full the context was after the request."""
        return self.tokens


@dataclass(frozen=True)
class MessagePayload:
    """What is said, whole; `author` is an agent's name, or the harness's.

    The turn of an agent that uses tools has the artifact `turn.json`, a runner.conversation.Turn:
    its calls and whatever its model must be shown again. `stage` and `ordinal` are of a brief: the
    stage of the workflow that it opens, and its number in the run, counted from 1.
    """

    author: str
    text: str
    kind: MessageKind = MessageKind.said
    stage: str = ""
    ordinal: int = 0
    usage: Usage | None = None


@dataclass(frozen=True)
class ToolCallPayload:
    """`call` is unique in the run. Arguments that are long are cut; `turn.json` has them whole."""

    call: str
    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class ToolResultPayload:
    """What the agent was told. Not `ok`: `text` is a structured error. More: `details.txt`."""

    call: str
    ok: bool
    text: str


@dataclass(frozen=True)
class CandidatePayload:
    """`number` counts from 1 within the run; `source_sha256` is one of the event's artifacts.

    `constants` are the tuning values the source was written with; `kernel` the zoo kernel, if any;
    `call` the tool call that made it, so that a call repeated after a crash makes no second one.
    """

    number: int
    parent: int | None
    language: str
    idea: str
    author: str
    source_sha256: str
    kernel: str = ""
    constants: dict[str, int] = field(default_factory=dict)
    call: str = ""


@dataclass(frozen=True)
class AnalysisPayload:
    """What `tool` (`analyze` or `simulate`) found without a device, as runner.analysis words it.

    `target` and `case` are what it assumed. The artifact `levels.json.gz` of an `analyze` holds
    every level of every kernel (runner.analysis.stored).
    """

    candidate: int
    verdict: str
    findings: tuple[dict[str, Any], ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)
    reason: str = ""
    scope: tuple[str, ...] = ()
    tool: str = "analyze"
    target: str = ""
    case: str = ""


@dataclass(frozen=True)
class EvaluationPayload:
    """`scope` is empty for a whole evaluation, which alone makes a candidate rank.

    `check` judges without timing, `case NAME` judges and times one case.
    """

    candidate: int
    evaluation: Evaluation
    scope: str = ""


@dataclass(frozen=True)
class ProfilePayload:
    candidate: int
    profiler: str
    available: bool
    reason: str = ""
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class NotePayload:
    """A person's note, or an agent's to whoever comes after it: then `call` made it."""

    author: str
    text: str
    call: str = ""


class ControlAction(StrEnum):
    """What a person can ask of a run under way; it takes effect at the next step."""

    stop = "stop"
    pause = "pause"
    resume = "resume"
    steer = "steer"
    extend = "extend"


@dataclass(frozen=True)
class ControlPayload:
    """A person's request, written when it takes effect.

    `text` is what a steering note says, `budgets` the new limits of an extension. `request` numbers
    the requests of a run where they are made, so that none is carried out twice.
    """

    action: ControlAction
    by: str
    text: str = ""
    budgets: Budgets | None = None
    request: int = 0


@dataclass(frozen=True)
class BudgetPayload:
    """What is used so far, beside its limit. `dollars` is None if a price is not known."""

    evaluations: int
    wall_clock_s: float
    limits: Budgets
    tokens: int = 0
    dollars: float | None = 0.0


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

    def artifact(self, name: str) -> ArtifactRef | None:
        """The artifact of that name, if the event has one."""
        return next((ref for ref in self.artifacts if ref.name == name), None)


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
    """The event for a payload object; its type follows from the payload's class.

    An error may quote whatever it met: no key of this process gets into a log.
    """
    refs = tuple(artifact_ref(name, content) for name, content in (artifacts or {}).items())
    document = keys.redact_document(to_json(payload))
    return Event(run, seq, at, TYPES[type(payload)], document, refs)
