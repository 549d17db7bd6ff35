"""A reply of a model while it arrives: the events of a stream, put together.

It is given plain JSON and refuses nothing: whatever a model or a network makes of a reply is a
draft that says what is wrong with it. What was streamed is kept as it must be sent back.
"""

from __future__ import annotations

import json
import math
from typing import Any

from runner.conversation import CUT, REFUSED, Call, Turn
from runner.events import Usage
from runner.messages import pricing

CHARACTERS_PER_TOKEN = 3  # fewer than there are: an estimate must not fall short
MOST_LEVELS = 40
INVALID = "INVALID_JSON"  # wraps the input of a call that cannot be sent back as it was


class Draft:
    """What has arrived of one reply of `model`.

    `stop` is why it ended, in the words of the API, `refused_as` the policy behind a refusal, and
    `whole` that nothing more comes.
    """

    def __init__(self, model: str) -> None:
        self.stop = ""
        self.refused_as = ""
        self.whole = False
        self._model = model
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._characters = 0

    def add(self, event: dict[str, Any]) -> None:
        """One more event of the stream, in the order of the stream."""
        match event.get("type"):
            case "message_start":
                self._count(event["message"].get("usage"))
            case "content_block_start":
                self._blocks[event["index"]] = clean(event["content_block"])
            case "content_block_delta":
                self._extend(event["index"], clean(event["delta"]))
            case "message_delta":
                self.stop = event["delta"].get("stop_reason") or self.stop
                details = event["delta"].get("stop_details") or {}
                self.refused_as = details.get("category") or self.refused_as
                self._count(event.get("usage"))
            case "message_stop":
                self.whole = True

    @property
    def text(self) -> str:
        """What the model says, so far."""
        return self._joined("text")

    @property
    def shown(self) -> str:
        """What people see of it: the text, or the thinking where there is nothing beside it."""
        return self.text or self._joined("thinking")

    @property
    def usage(self) -> Usage | None:
        """What it costs so far, None before anything arrived.

        The API counts the output at the end of a reply only: until then it is estimated from what
        was streamed, so that a reply that is given up is not taken for free.
        """
        if not self._counts:
            return None
        counted = self._counts.get("output_tokens", 0)
        if not self.stop:
            counted = max(counted, math.ceil(self._characters / CHARACTERS_PER_TOKEN))
        read, written = self._cached("read"), self._cached("creation")
        fresh = self._counts.get("input_tokens", 0)
        model = pricing.find(self._model)
        dollars = None if model is None else model.dollars(fresh, counted, read, written)
        return Usage(self._model, fresh, counted, read, written, dollars)

    def turn(self) -> Turn:
        """The reply as a turn. A refused one calls nothing: half a call is nobody's wish."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        calls = []
        for index in sorted(self._blocks):
            if self._blocks[index].get("type") == "tool_use":
                calls.append(self._call(index))
        content = tuple(each for each in blocks if not _empty(each))
        made = () if self.stop == REFUSED else tuple(calls)
        return Turn(self.shown, made, content, self.usage, self.stop)

    def _extend(self, index: int, delta: dict[str, Any]) -> None:
        block = self._blocks.setdefault(index, {})
        match delta.get("type"):
            case "text_delta":
                added = delta["text"]
                block["text"] = block.get("text", "") + added
            case "thinking_delta":
                added = delta["thinking"]
                block["thinking"] = block.get("thinking", "") + added
            case "input_json_delta":
                added = delta["partial_json"]
                self._inputs[index] = self._inputs.get(index, "") + added
            case "signature_delta":
                block["signature"] = delta["signature"]
                return
            case _:
                return
        self._characters += len(added)

    def _call(self, index: int) -> Call:
        """The call of a block, whose input becomes part of the block."""
        block = self._blocks[index]
        streamed = self._inputs.get(index, "")
        arguments, malformed = _arguments(streamed, block.get("input"), self.stop)
        block["input"] = {INVALID: malformed} if malformed else arguments
        return Call(str(block.get("id")), str(block.get("name")), arguments, malformed)

    def _count(self, usage: dict[str, Any] | None) -> None:
        """Later counts are totals: they take the place of earlier ones, where there are any."""
        known = {name: n for name, n in (usage or {}).items() if isinstance(n, int)}
        self._counts.update(known)

    def _cached(self, way: str) -> int:
        return self._counts.get(f"cache_{way}_input_tokens", 0)

    def _joined(self, kind: str) -> str:
        parts = (
            block.get(kind) or ""
            for _, block in sorted(self._blocks.items())
            if block.get("type") == kind
        )
        return "\n\n".join(part.strip() for part in parts if part.strip())


def clean(value: Any, levels: int = MOST_LEVELS) -> Any:
    """The JSON value without surrogates that belong to no pair: nothing can write them.

    Raises ValueError for one that is nested so deep that it can only be meant to break something.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if levels == 0:
        raise ValueError(f"nested more than {MOST_LEVELS} deep")
    if isinstance(value, list):
        return [clean(each, levels - 1) for each in value]
    if isinstance(value, dict):
        return {clean(name): clean(each, levels - 1) for name, each in value.items()}
    return value


def _arguments(streamed: str, given: Any, stop: str) -> tuple[dict[str, Any], str]:
    """The input of a call, or the text that was to be one."""
    if not streamed.strip():
        if stop == CUT:
            return {}, "(cut off by the limit of the output before it began)"
        return (given if isinstance(given, dict) else {}), ""
    try:
        value = clean(json.loads(streamed, parse_constant=_refuse))
    except (ValueError, RecursionError):
        return {}, streamed
    return (value, "") if isinstance(value, dict) else ({}, streamed)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _empty(block: dict[str, Any]) -> bool:
    """True of a text of nothing, which the API sends but does not take back."""
    return block.get("type") == "text" and not str(block.get("text", "")).strip()
