"""An outside agent: somebody's own coding agent, whose tool calls come in from elsewhere.

Owns how requests become turns, and what the log says to each of them. Each request has a number,
dense in its run, and a call carries it as its id: which requests were taken follows from the log
alone, so a driver that starts again neither loses one nor carries it out twice. How requests
arrive and how answers leave is the business of whoever keeps the inbox.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

from runner import tools
from runner.conversation import TURN, Call, Turn, call_name, steering
from runner.events import (
    ControlAction,
    ControlPayload,
    Event,
    EventType,
    MessageKind,
    MessagePayload,
    RunPayload,
    RunStatus,
    ToolResultPayload,
)
from runner.loop import Loop
from runner.spec import OUTSIDE, AgentSpec, SpecError
from runner.tools import Tool
from runner.wire import from_json

NAME = OUTSIDE
SERVER = "warpdeck"  # what a client calls the server
PROMPT = "optimise"  # the server's prompt that holds the whole task
POLL_S = 0.05
MOST_AT_ONCE = 8  # requests of one turn; between turns there is nothing to run again after a crash
WAITS = "Waits for an outside agent to connect and call a tool."


@dataclass(frozen=True)
class ToolRequest:
    """One tool call as it came in. `number` counts from 1 in its run."""

    number: int
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)


class Inbox(Protocol):
    def next(self, after: int) -> ToolRequest | None:
        """The first request whose number is above `after`, without waiting."""
        ...


def create(spec: AgentSpec) -> NoReturn:
    """Raises SpecError: an outside agent is there only where it can connect."""
    remedy = "Launch the run in the web, or use `python -m runner mcp`."
    raise SpecError("agent", "nobody can connect to an outside agent's run here.", remedy)


class ExternalAgent:
    """Its turns are the requests that wait. It has no words of its own, and none at the end."""

    name = NAME
    closing_s = 0.0

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox

    def reply(self, loop: Loop, offered: tuple[Tool, ...]) -> Turn:
        """Waits until something is asked; only the wall clock and people end that."""
        taken = _last_taken(loop)
        while (first := self._inbox.next(taken)) is None:
            if not taken and loop.state.noticed != WAITS:
                loop.notice(WAITS)
            loop.heed()
            time.sleep(POLL_S)
        requests = [first]
        while len(requests) < MOST_AT_ONCE:
            after = self._inbox.next(requests[-1].number)
            if after is None:
                break
            requests.append(after)
        return Turn(calls=tuple(_call(request) for request in requests))

    def hand_over(self, loop: Loop, offered: tuple[Tool, ...]) -> Turn:
        return Turn()

    def close(self, loop: Loop, reason: str) -> Turn:
        return Turn()


def _call(request: ToolRequest) -> Call:
    return Call(str(request.number), request.tool, request.arguments)


def _last_taken(loop: Loop) -> int:
    """The number of the last request in a turn; all turns lie in the one context of the run."""
    last = loop.conversation.last_turn
    return 0 if last is None else last_number(loop.turn(last.sha256))


def last_number(turn: Turn) -> int:
    """The number of the last request that became part of an outside agent's turn."""
    return int(turn.calls[-1].id)


@dataclass(frozen=True)
class Reply:
    """What an outside agent is answered: a tool's answer, or not `ok`: a structured error.

    `told` is what it was told in between: nudges of the harness, and notes of people who watch.
    """

    text: str
    ok: bool = True
    told: tuple[str, ...] = ()

    @property
    def error(self) -> dict[str, Any] | None:
        """The structured error, where this is one."""
        if self.ok:
            return None
        try:
            document = json.loads(self.text)
        except ValueError:
            return None
        return document if isinstance(document, dict) else None


class Awaited:
    """The answer to one request. It must hear every event since the last result before it.

    `read` gives the artifacts of the run.
    """

    def __init__(self, number: int, read: Callable[[str], bytes]) -> None:
        self._id = str(number)
        self._read = read
        self._call = ""
        self._told: list[str] = []

    def hear(self, event: Event) -> Reply | None:
        """The reply, if this event holds it; what is told reaches whoever is answered next."""
        if event.type not in HEARD:
            return None
        match event.decoded:
            case MessagePayload(kind=MessageKind.said):
                self._find(event)
            case MessagePayload(kind=MessageKind.nudge, text=text):
                self._told.append(text)
            case ControlPayload(action=ControlAction.steer) as note:
                self._told.append(steering(note))
            case ToolResultPayload() as result:
                if result.call == self._call:
                    return Reply(result.text, result.ok, tuple(self._told))
                self._told.clear()
            case RunPayload(status=status, reason=reason) if status.ended:
                return over(status, reason)
        return None

    def _find(self, event: Event) -> None:
        turn = turn_of(event, self._read)
        for index, call in enumerate(turn.calls if turn else ()):
            if call.id == self._id:
                self._call = call_name(event.seq, index)


HEARD = (EventType.message, EventType.control, EventType.tool_result, EventType.run)


def turn_of(event: Event, read: Callable[[str], bytes]) -> Turn | None:
    """The turn that a message holds, if it holds one."""
    found = event.artifact(TURN)
    return from_json(Turn, json.loads(read(found.sha256))) if found else None


def over(status: RunStatus, reason: str) -> Reply:
    """The answer to whatever is asked of a run that has ended."""
    return refused(
        "run", f"has {_ENDED[status]}: {reason}.", "Stop here; a new run must be launched."
    )


_ENDED = {
    RunStatus.finished: "finished",
    RunStatus.stopped: "been stopped",
    RunStatus.failed: "failed",
}


def refused(field: str, problem: str, remedy: str) -> Reply:
    """An answer that no tool gave, in the form of a tool's structured error."""
    return Reply(tools.refusal(field, problem, remedy).text, ok=False)
