"""Ledger: what the log of a run says of its costs, its stages and what was only tried.

A log never changes, so what was read of it is kept and the next reading goes on from there: a page
that is refreshed many times a minute reads each event once. Budgets and their limits are not its
business; they stand in the budget events. Nor are whole evaluations; they stand in the rows.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import Any

from runner.events import EventType, MessageKind, Usage
from runner.results import Verdict
from runner.wire import from_json
from webapp.runs.models import Event, Run

KEPT_RUNS = 256
READ = (EventType.message.value, EventType.evaluation.value)


@dataclass(frozen=True)
class Spending:
    """What one agent used of one model. `dollars` is None once a price was not known."""

    agent: str
    model: str
    requests: int = 0
    read_tokens: int = 0
    cached_tokens: int = 0
    written_tokens: int = 0
    dollars: float | None = 0.0

    def plus(self, usage: Usage) -> Spending:
        known = self.dollars is not None and usage.dollars is not None
        read = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
        return replace(
            self,
            requests=self.requests + 1,
            read_tokens=self.read_tokens + read,
            cached_tokens=self.cached_tokens + usage.cache_read_tokens,
            written_tokens=self.written_tokens + usage.output_tokens,
            dollars=self.dollars + usage.dollars if known else None,  # type: ignore[operator]
        )

    @property
    def cached_share(self) -> float:
        """Of the tokens read, those that came from the cache."""
        return self.cached_tokens / self.read_tokens if self.read_tokens else 0.0


@dataclass(frozen=True)
class Stage:
    """A stage that a brief opened at `seq`. A later brief of the same ordinal is no new stage.

    `model` is the first that its agent asked, if it asked one.
    """

    seq: int
    ordinal: int
    name: str
    agent: str
    model: str = ""


@dataclass(frozen=True)
class Ledger:
    """What the log up to `seq` says. `agent` is whose context is under way.

    `trials` has the verdict of each candidate that was evaluated in a narrower scope: the latest
    that did not pass, if one did not.
    """

    seq: int = 0
    agent: str = ""
    stages: tuple[Stage, ...] = ()
    by_player: dict[tuple[str, str], Spending] = field(default_factory=dict)
    trials: dict[int, Verdict] = field(default_factory=dict)

    def apply(self, seq: int, payload: dict[str, Any]) -> Ledger:
        """The ledger after one more payload, of a message or an evaluation, as plain JSON."""
        ledger = replace(self, seq=seq)
        if "evaluation" in payload:
            return ledger._tried(payload)
        return ledger._heard(seq, payload)

    @property
    def spendings(self) -> list[Spending]:
        """By agent and model, in the order in which they first asked."""
        return list(self.by_player.values())

    def _heard(self, seq: int, message: dict[str, Any]) -> Ledger:
        ledger = self
        if message.get("kind") == MessageKind.brief:
            ledger = ledger._briefed(seq, message)
        if message.get("usage"):
            ledger = ledger._paid(message["author"], from_json(Usage, message["usage"]))
        return ledger

    def _tried(self, payload: dict[str, Any]) -> Ledger:
        number, verdict = payload["candidate"], Verdict(payload["evaluation"]["verdict"])
        if not payload.get("scope") or (verdict is Verdict.passed and number in self.trials):
            return self
        return replace(self, trials={**self.trials, number: verdict})

    def _briefed(self, seq: int, message: dict[str, Any]) -> Ledger:
        agent, ordinal = message["author"], message.get("ordinal", 0)
        if any(stage.ordinal == ordinal for stage in self.stages):
            return replace(self, agent=agent)
        stage = Stage(seq, ordinal, message.get("stage", ""), agent)
        return replace(self, agent=agent, stages=(*self.stages, stage))

    def _paid(self, author: str, usage: Usage) -> Ledger:
        """The harness speaks of turns that were given up: the agent under way paid for them."""
        key = (self.agent or author, usage.model)
        spending = self.by_player.get(key, Spending(*key)).plus(usage)
        stages = self.stages
        if stages and not stages[-1].model:
            stages = (*stages[:-1], replace(stages[-1], model=usage.model))
        return replace(self, stages=stages, by_player={**self.by_player, key: spending})


_kept: OrderedDict[str, Ledger] = OrderedDict()
_lock = threading.Lock()


def ledger(run: Run) -> Ledger:
    """The ledger of a run as far as its log goes now; at most one query."""
    with _lock:
        known = _kept.get(run.uuid, Ledger())
    rows = Event.objects.filter(run=run, type__in=READ, seq__gt=known.seq)
    for seq, body in rows.order_by("seq").values_list("seq", "body"):
        known = known.apply(seq, json.loads(body)["payload"])
    with _lock:
        _kept[run.uuid] = known
        _kept.move_to_end(run.uuid)
        while len(_kept) > KEPT_RUNS:
            _kept.popitem(last=False)
    return known
