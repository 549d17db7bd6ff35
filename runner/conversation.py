"""Conversation: what an agent that uses tools has been shown and has said, read from the log.

A fold over the events, like RunState: an agent keeps no memory of its own, so one that is started
again after a crash goes on where the log ends. Each brief opens a fresh context, and what came
before it is no part of the conversation. How a model's interface wants it written is the agent's
business.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from runner.events import (
    ControlAction,
    ControlPayload,
    Event,
    EventType,
    MessageKind,
    MessagePayload,
    ToolCallPayload,
    ToolResultPayload,
    Usage,
)

TURN = "turn.json"  # the artifact of a message that holds its Turn
DETAILS = "details.txt"  # the artifact of a tool result that holds what its text left out
FINISH = "finish"  # the tool that ends a stage
BENCHMARK = "benchmark"  # the tool that has something measured
CHECK = "check"  # the tool that has something judged without timing
REFUSED = "refusal"  # Turn.stop where the model would not answer
CUT = "max_tokens"  # Turn.stop where the turn was longer than the output may be


@dataclass(frozen=True)
class Call:
    """A tool call as the agent made it. `malformed` is its text where that was no JSON object."""

    id: str
    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    malformed: str = ""


@dataclass(frozen=True)
class Turn:
    """One turn of an agent: what it says and which tools it calls, in this order.

    `content` is whatever its model must be shown again unchanged (thinking blocks, signatures);
    `stop` why the model stopped, in the model's words.
    """

    text: str = ""
    calls: tuple[Call, ...] = ()
    content: tuple[Any, ...] = ()
    usage: Usage | None = None
    stop: str = ""


@dataclass(frozen=True)
class Said:
    """A turn of the agent, to be read from the artifact `sha256`; it is `seq` in the log."""

    seq: int
    text: str
    sha256: str


@dataclass(frozen=True)
class Told:
    """What the agent was told in between: a nudge of the harness, or a person's steering note."""

    seq: int
    text: str


@dataclass(frozen=True)
class Result:
    """The answer to the call of that id; more of it lies in the artifact `details`."""

    seq: int
    call: str
    ok: bool
    text: str
    details: str = ""


Entry = Said | Told | Result


@dataclass(frozen=True)
class Conversation:
    """The context under way. `ordinal` is 0 before the first brief; it counts the stages.

    `usage` is of the latest turn. `finished` says that the agent has called the tool `finish`.
    `tools` names the tool of each call of this context.
    """

    stage: str = ""
    ordinal: int = 0
    agent: str = ""
    brief: str = ""
    entries: tuple[Entry, ...] = ()
    tools: dict[str, str] = field(default_factory=dict)
    arguments: dict[str, str] = field(default_factory=dict)
    usage: Usage | None = None
    finished: bool = False

    def apply(self, event: Event) -> Conversation:
        """The conversation after one more event."""
        if event.type not in _HEARD:
            return self
        payload = event.decoded
        match payload:
            case MessagePayload(kind=MessageKind.brief):
                return Conversation(payload.stage, payload.ordinal, payload.author, payload.text)
            case MessagePayload(kind=MessageKind.said):
                return self._said(event, payload)
            case MessagePayload(kind=MessageKind.nudge, text=text):
                return self._with(Told(event.seq, text))
            case ControlPayload(action=ControlAction.steer):
                return self._with(Told(event.seq, steering(payload)))
            case ToolCallPayload():
                return self._called(payload)
            case ToolResultPayload():
                return self._answered(event, payload)
        return self

    @property
    def last_turn(self) -> Said | None:
        turns = [entry for entry in self.entries if isinstance(entry, Said)]
        return turns[-1] if turns else None

    @property
    def lacks_reply(self) -> bool:
        """True if nothing was said to the agent since its last turn: that called nothing."""
        return bool(self.entries) and isinstance(self.entries[-1], Said)

    @property
    def answered(self) -> frozenset[str]:
        """The calls that have a result."""
        return frozenset(entry.call for entry in self.entries if isinstance(entry, Result))

    @property
    def idle_turns(self) -> int:
        """Turns in a row, up to the last, after which no tool was called."""
        count = 0
        for entry in reversed(self.entries):
            if isinstance(entry, Result):
                break
            count += isinstance(entry, Said)
        return count

    @property
    def repeats(self) -> int:
        """How often a call that had failed was made again and failed, in a row up to the last.

        Counted are the failures in a row of no more than two different calls, so that an agent
        that goes to and fro between two of them is seen as well.
        """
        results = [entry for entry in self.entries if isinstance(entry, Result)]
        count = 0
        different: set[tuple[str | None, str | None]] = set()
        for result in reversed(results):
            made = (self.tools.get(result.call), self.arguments.get(result.call))
            if result.ok or len(different | {made}) > 2:
                break
            count += 1
            different.add(made)
        return count - len(different)

    def told(self, text: str) -> bool:
        """True if the agent was told just that in this context."""
        return any(isinstance(each, Told) and each.text == text for each in self.entries)

    def told_since_turn(self, text: str) -> bool:
        """True if the agent was told just that after its last turn."""
        for entry in reversed(self.entries):
            if isinstance(entry, Said):
                return False
            if isinstance(entry, Told) and entry.text == text:
                return True
        return False

    def turned_since(self, text: str) -> bool:
        """True if the agent has taken a turn after it was told just that."""
        told = False
        for entry in self.entries:
            told = told or (isinstance(entry, Told) and entry.text == text)
            if told and isinstance(entry, Said):
                return True
        return False

    def was_answered(self, tool: str, text: str) -> bool:
        """True if a call of that tool was answered just so in this context."""
        results = [entry for entry in self.entries if isinstance(entry, Result)]
        return any(self.tools.get(each.call) == tool and each.text == text for each in results)

    def _said(self, event: Event, payload: MessagePayload) -> Conversation:
        turn = event.artifact(TURN)
        if turn is None:
            return self  # an agent that proposes whole candidates: it is shown the state alone
        said = Said(event.seq, payload.text, turn.sha256)
        return replace(self._with(said), usage=payload.usage or self.usage)

    def _called(self, payload: ToolCallPayload) -> Conversation:
        tools = {**self.tools, payload.call: payload.tool}
        arguments = {**self.arguments, payload.call: repr(sorted(payload.arguments.items()))}
        return replace(self, tools=tools, arguments=arguments)

    def _answered(self, event: Event, payload: ToolResultPayload) -> Conversation:
        details = event.artifact(DETAILS)
        more = details.sha256 if details else ""
        result = Result(event.seq, payload.call, payload.ok, payload.text, more)
        finished = payload.ok and self.tools.get(payload.call) == FINISH
        return replace(self._with(result), finished=self.finished or finished)

    def _with(self, entry: Entry) -> Conversation:
        return replace(self, entries=(*self.entries, entry))


_HEARD = {EventType.message, EventType.control, EventType.tool_call, EventType.tool_result}


def steering(note: ControlPayload) -> str:
    """A steering note as the agent reads it: whose words they are, and that they are a person's."""
    return f"{note.by}, a person who watches this run, says: {note.text}"


def call_name(seq: int, index: int) -> str:
    """A call's name in the log: unique in the run, whatever the model calls it."""
    return f"e{seq}.{index + 1}"
