"""RunState: what a log says about its run so far, as a pure fold over the events.

Driver, archive reader and resumption all ask this one fold, so they cannot disagree. It refuses a
log that contradicts itself; it reads no clock, no storage and no catalog.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from runner.conversation import DETAILS, TURN
from runner.events import (
    AnalysisPayload,
    ArtifactRef,
    BudgetPayload,
    CandidatePayload,
    ControlAction,
    ControlPayload,
    EvaluationPayload,
    Event,
    EventType,
    MessageKind,
    MessagePayload,
    NotePayload,
    ProfilePayload,
    RunPayload,
    RunStatus,
    ToolCallPayload,
    ToolResultPayload,
)
from runner.results import Ceiling, Evaluation
from runner.spec import Budgets, RunSpec


class BrokenLog(ValueError):
    """The events contradict each other; the message names the event by its seq."""


@dataclass(frozen=True)
class AnalysisKey:
    """What an analysis was of: the same key means that it need not be made again."""

    candidate: int
    tool: str
    target: str
    case: str

    @classmethod
    def of(cls, found: AnalysisPayload) -> AnalysisKey:
        return cls(found.candidate, found.tool, found.target, found.case)


@dataclass(frozen=True)
class Opening:
    """How a stage of the workflow began: what had been used and found by then.

    `evaluations` and `turns` are what the whole run had used; `best` is the best candidate.
    """

    ordinal: int
    stage: str
    agent: str
    evaluations: int
    turns: int
    best: int | None


@dataclass(frozen=True)
class RunState:
    """The fold's value after `last_seq` events; `apply` returns the next one.

    `wall_clock_s` counts only time during which a driver was at work: the gap before a resumption
    and a pause are nobody's use. `stop` is the person's stop request, `said` the last message of
    the step under way, `noticed` the last notice since an agent's turn, `calls` the tool calls
    made, `made_by` the candidate that a call made. `evaluations` holds the whole ones, `trials`
    those of a narrower scope by candidate and scope;
    `printed` names, by the same keys, the artifacts of program output too long for the event.
    `details` names the artifact of each tool call whose answer has more than its text.
    `used_before_call` are the evaluations that were used when the latest tool call began.
    `turns` counts the turns of each agent that uses tools, `stages` are the workflow's so far.
    `limits` are the spec's budgets until a person extends them; `request` is the highest number of
    a request that took effect, `asked_by` whose it was. `dollars` is None once something was used
    whose price is not known.
    """

    run: str = ""
    spec: RunSpec | None = None
    status: RunStatus = RunStatus.queued
    reason: str = ""
    started: bool = False
    candidates: dict[int, CandidatePayload] = field(default_factory=dict)
    evaluations: dict[int, Evaluation] = field(default_factory=dict)
    best: int | None = None
    ceilings: tuple[Ceiling, ...] = ()
    stop: ControlPayload | None = None
    said: MessagePayload | None = None
    noticed: str = ""
    budget: BudgetPayload | None = None
    calls: frozenset[str] = frozenset()
    made_by: dict[str, int] = field(default_factory=dict)
    trials: dict[tuple[int, str], Evaluation] = field(default_factory=dict)
    printed: dict[tuple[int, str], tuple[ArtifactRef, ...]] = field(default_factory=dict)
    details: dict[str, str] = field(default_factory=dict)
    profiles: dict[int, ProfilePayload] = field(default_factory=dict)
    analyses: dict[AnalysisKey, AnalysisPayload] = field(default_factory=dict)
    used_before_call: int = 0
    turns: dict[str, int] = field(default_factory=dict)
    stages: tuple[Opening, ...] = ()
    notes: tuple[NotePayload, ...] = ()
    extended: Budgets | None = None
    paused: bool = False
    request: int = 0
    asked_by: str = ""
    summary: str | None = None
    tokens: int = 0
    dollars: float | None = 0.0
    wall_clock_s: float = 0.0
    last_seq: int = 0
    last_at: str = ""

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> RunState:
        """Fold a whole log from its first event; raises BrokenLog or WireError."""
        return functools.reduce(cls.apply, events, cls())

    def apply(self, event: Event) -> RunState:
        """The state after one more event; raises BrokenLog if it does not follow from this one."""
        if event.seq != self.last_seq + 1:
            raise BrokenLog(
                f"event {event.seq} follows event {self.last_seq}: numbers must be dense"
            )
        if self.run and event.run != self.run:
            raise BrokenLog(f"event {event.seq} belongs to run {event.run}, not to {self.run}")
        used = self.wall_clock_s + self._elapsed_s(event)
        changes = self._changes(event)
        return replace(
            self, run=event.run, last_seq=event.seq, last_at=event.at, wall_clock_s=used, **changes
        )

    @property
    def pending(self) -> tuple[int, ...]:
        """Proposals that wait for their evaluation, oldest first.

        What a tool call wrote waits for nobody: its author has it measured, or leaves it be.
        """
        return tuple(
            number
            for number, candidate in self.candidates.items()
            if number not in self.evaluations and not candidate.call
        )

    @property
    def evaluations_used(self) -> int:
        """Measurements asked of a device, whatever their scope."""
        return len(self.evaluations) + len(self.trials)

    @property
    def limits(self) -> Budgets:
        assert self.spec is not None, "a run has a spec from its first event on"
        return self.extended or self.spec.budgets

    def evaluation(self, number: int, scope: str = "") -> Evaluation | None:
        """What an evaluation of that scope found, if there was one."""
        return self.trials.get((number, scope)) if scope else self.evaluations.get(number)

    @property
    def best_evaluation(self) -> Evaluation | None:
        return None if self.best is None else self.evaluations[self.best]

    @property
    def ranked(self) -> tuple[int, ...]:
        """Candidates with a speedup, best first by `Evaluation.floor`; equal ones by number."""
        floors = {n: e.floor for n, e in self.evaluations.items() if e.floor is not None}
        return tuple(sorted(floors, key=lambda number: (-floors[number], number)))

    @property
    def frontier(self) -> tuple[int, ...]:
        """Passing candidates worth keeping, fastest first.

        Kept are the best one of all, the best of each idea, and whichever is the fastest on some
        scored case: it may win where the overall best does not. Of one idea are candidates that
        tune the same zoo kernel, or that descend from the same first one.
        """
        ranked = self.ranked
        keep: dict[Any, int] = {}
        fastest: dict[str, tuple[float, int]] = {}
        for number in ranked:
            candidate = self.candidates[number]
            idea = candidate.kernel or self._origin(number)
            keep.setdefault((candidate.language, idea), number)
            for case in self.evaluations[number].scored:
                if case.timing is not None:
                    entry = (-case.timing.speedup, number)
                    fastest[case.case] = min(fastest.get(case.case, entry), entry)
        kept = set(keep.values()) | {number for _, number in fastest.values()}
        return tuple(number for number in ranked if number in kept)

    def _origin(self, number: int) -> int:
        """The candidate without a parent that it descends from."""
        while (parent := self.candidates[number].parent) is not None:
            number = parent
        return number

    def _elapsed_s(self, event: Event) -> float:
        resumed = event.type is EventType.run and event.payload.get("status") == RunStatus.running
        if self.status is not RunStatus.running or resumed:
            return 0.0
        return max(0.0, (moment(event) - _parse(self.last_at)).total_seconds())

    def _changes(self, event: Event) -> dict[str, Any]:
        if self.last_seq == 0 and event.type is not EventType.run:
            raise BrokenLog("event 1 must be a run event that holds the spec")
        match event.type:
            case EventType.run:
                return self._run_changes(event)
            case EventType.candidate:
                return self._candidate_changes(event)
            case EventType.evaluation:
                return self._evaluation_changes(event)
        if event.type not in _KEPT:
            return {}
        match event.decoded:
            case MessagePayload() as message:
                return self._message_changes(event, message)
            case ToolCallPayload(call=call):
                return {"calls": self.calls | {call}, "used_before_call": self.evaluations_used}
            case BudgetPayload() as budget:
                return {"budget": budget}
            case NotePayload() as note:
                return {"notes": (*self.notes, note)}
            case AnalysisPayload() as found:
                return {"analyses": {**self.analyses, AnalysisKey.of(found): found}}
            case ProfilePayload() as profile:
                return {"profiles": {**self.profiles, profile.candidate: profile}}
            case ToolResultPayload(call=call):
                kept = event.artifact(DETAILS)
                return {"details": {**self.details, call: kept.sha256}} if kept else {}
            case ControlPayload() as control:
                return self._control_changes(control)
        return {}

    def _message_changes(self, event: Event, message: MessagePayload) -> dict[str, Any]:
        changes: dict[str, Any] = {}
        if message.kind is MessageKind.said:
            changes.update(said=message, noticed="")
            if event.artifact(TURN) is not None:
                count = self.turns.get(message.author, 0) + 1
                changes["turns"] = {**self.turns, message.author: count}
        if message.kind is MessageKind.brief and not self._is_open(message.ordinal):
            changes["stages"] = (*self.stages, self._opening(message))
        if message.kind is MessageKind.notice:
            changes["noticed"] = message.text
        if message.kind is MessageKind.summary:
            changes["summary"] = message.text
        if message.usage is not None:
            used = message.usage.dollars
            known = self.dollars is not None and used is not None
            changes["tokens"] = self.tokens + message.usage.tokens
            changes["dollars"] = self.dollars + used if known else None  # type: ignore[operator]
        return changes

    def _is_open(self, ordinal: int) -> bool:
        """True of a brief that only refreshes the context of the stage under way."""
        return bool(self.stages) and self.stages[-1].ordinal == ordinal

    def _opening(self, brief: MessagePayload) -> Opening:
        return Opening(
            ordinal=brief.ordinal,
            stage=brief.stage,
            agent=brief.author,
            evaluations=self.evaluations_used,
            turns=sum(self.turns.values()),
            best=self.best,
        )

    def _control_changes(self, control: ControlPayload) -> dict[str, Any]:
        changes: dict[str, Any] = {
            "request": max(self.request, control.request),
            "asked_by": control.by,
        }
        match control.action:
            case ControlAction.stop:
                changes["stop"] = self.stop or control
            case ControlAction.pause | ControlAction.resume:
                changes["paused"] = control.action is ControlAction.pause
            case ControlAction.extend:
                changes["extended"] = control.budgets or self.extended
        return changes

    def _run_changes(self, event: Event) -> dict[str, Any]:
        payload: RunPayload = event.decoded
        if (payload.spec is None) is (self.last_seq == 0):
            raise BrokenLog(f"event {event.seq}: the spec is on the first event, and only there")
        return {
            "spec": payload.spec or self.spec,
            "status": payload.status,
            "reason": payload.reason,
            "started": self.started or payload.status is RunStatus.running,
            "ceilings": self.ceilings or payload.ceilings,
        }

    def _candidate_changes(self, event: Event) -> dict[str, Any]:
        payload: CandidatePayload = event.decoded
        if payload.number != len(self.candidates) + 1:
            raise BrokenLog(
                f"event {event.seq}: candidate c{payload.number} follows c{len(self.candidates)}"
            )
        if payload.parent is not None and payload.parent not in self.candidates:
            raise BrokenLog(f"event {event.seq}: the parent c{payload.parent} is not in the log")
        if payload.source_sha256 not in {ref.sha256 for ref in event.artifacts}:
            raise BrokenLog(f"event {event.seq}: the source is not among the event's artifacts")
        made_by = {**self.made_by, payload.call: payload.number} if payload.call else self.made_by
        candidates = {**self.candidates, payload.number: payload}
        return {"candidates": candidates, "made_by": made_by, "said": None}

    def _evaluation_changes(self, event: Event) -> dict[str, Any]:
        payload: EvaluationPayload = event.decoded
        number = payload.candidate
        if number not in self.candidates:
            raise BrokenLog(f"event {event.seq}: evaluates c{number}, which is not in the log")
        if self.evaluation(number, payload.scope) is not None:
            raise BrokenLog(f"event {event.seq}: evaluates c{number} a second time")
        evaluation = payload.evaluation
        printed = self.printed
        if event.artifacts:
            printed = {**printed, (number, payload.scope): event.artifacts}
        if payload.scope:
            trials = {**self.trials, (number, payload.scope): evaluation}
            return {"trials": trials, "printed": printed}
        best, champion = self.best, self.best_evaluation
        if evaluation.better_than(champion):
            best = number
        return {
            "evaluations": {**self.evaluations, number: evaluation},
            "best": best,
            "printed": printed,
            "said": None,
        }


_KEPT = {
    EventType.message,
    EventType.tool_call,
    EventType.budget,
    EventType.control,
    EventType.note,
    EventType.analysis,
    EventType.profile,
    EventType.tool_result,
}


def moment(event: Event) -> datetime:
    """When an event was written; raises BrokenLog unless `at` is ISO 8601 in UTC."""
    return _parse(event.at)


def _parse(at: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(at)
    except ValueError as error:
        raise BrokenLog(f"{at!r} is not an ISO 8601 time") from error
    if parsed.utcoffset() != timedelta(0):
        raise BrokenLog(f"{at!r} is not in UTC")
    return parsed
