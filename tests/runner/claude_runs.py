"""Runs of the Claude agent against the server of the tests, with a judge instead of a device."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from runner.agents.claude import ClaudeAgent
from runner.conversation import TURN, Turn
from runner.drive import drive
from runner.events import Event, EventType, MessageKind, RunStatus, Usage
from runner.log import MemoryLog
from runner.loop import Control, Evaluator
from runner.messages.exchange import Patience
from runner.spec import Budgets, RunSpec
from runner.state import RunState
from runner.wire import from_json
from tests.runner.fakes import RUN, FakeEvaluator, Requests, by_first_line, only
from tests.runner.messages_server import (
    KEY,
    MessagesServer,
    Response,
    Script,
    Text,
    ToolUse,
    reply,
)

SPEC = RunSpec("softmax", agent="claude", budgets=Budgets(evaluations=6))
FINISH = reply(Text("Nothing more pays."), ToolUse("finish", {"summary": "It is done."}))
CLOSING = reply(Text("Two ideas were tried."))


class HintedLog(MemoryLog):
    """Keeps what was shown of turns under way, too."""

    def __init__(self, events: list[Event] | None = None, artifacts: Any = None) -> None:
        super().__init__(RUN, events, artifacts)
        self.hints: list[str] = []

    def hint(self, text: str) -> None:
        self.hints.append(text)


@dataclass
class Played:
    """What a run left: its log, and what the server saw."""

    log: HintedLog
    server: MessagesServer
    waits: list[float] = field(default_factory=list)

    @property
    def state(self) -> RunState:
        return RunState.from_events(self.log.history())

    @property
    def status(self) -> RunStatus:
        return self.state.status

    @property
    def requests(self) -> list[dict[str, Any]]:
        return self.server.requests

    def messages(self, kind: MessageKind) -> list[str]:
        return [
            event.payload["text"]
            for event in self.log.events
            if event.type is EventType.message and event.payload["kind"] == kind
        ]

    @property
    def notices(self) -> list[str]:
        return self.messages(MessageKind.notice)

    @property
    def turns(self) -> list[Turn]:
        refs = [ref for event in self.log.events for ref in event.artifacts if ref.name == TURN]
        return [from_json(Turn, json.loads(self.log.read(ref.sha256))) for ref in refs]

    @property
    def results(self) -> list[dict[str, Any]]:
        return [e.payload for e in self.log.events if e.type is EventType.tool_result]

    @property
    def usages(self) -> list[Usage]:
        payloads = (event.decoded for event in self.log.events if event.type is EventType.message)
        return [payload.usage for payload in payloads if payload.usage is not None]


def play(
    script: Iterable[Response] | Script = (),
    spec: RunSpec = SPEC,
    *,
    closing: Response = CLOSING,
    control: Control | None = None,
    evaluator: Evaluator | None = None,
    log: HintedLog | None = None,
    window_tokens: int = 1_000_000,
    key: str = KEY,
    patience: dict[str, Any] | None = None,
    **settings: Any,
) -> Played:
    """Drive a run to its end. Waits between attempts are noted and not waited for.

    Once its responses are used up, the agent of a script finishes.
    """
    waits: list[float] = []
    patient = Patience(**{"sleep": waits.append, **(patience or {})})
    log = log or HintedLog()
    before = os.environ.get("ANTHROPIC_API_KEY")
    os.environ["ANTHROPIC_API_KEY"] = key
    try:
        with MessagesServer(_finishing(script, closing), window_tokens=window_tokens) as server:
            agent = ClaudeAgent(**{"patience": patient, "base_url": server.url, **settings})
            drive(
                spec,
                log,
                evaluator or FakeEvaluator(by_first_line),
                control or Requests(),
                create=only(agent),
            )
    finally:
        if before is None:
            del os.environ["ANTHROPIC_API_KEY"]
        else:
            os.environ["ANTHROPIC_API_KEY"] = before
    return Played(log, server, waits)


def write(line: str, idea: str = "Try it.") -> ToolUse:
    """A candidate that the judge takes for what its first line says."""
    arguments = {"source": f"// {line}\n", "idea": idea}
    return ToolUse("write_candidate", arguments)


def _finishing(script: Iterable[Response] | Script, closing: Response) -> Script:
    if callable(script):
        return script
    responses = iter(script)
    return lambda request: next(responses, FINISH) if request.get("tools") else closing
