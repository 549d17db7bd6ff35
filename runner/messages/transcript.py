"""The conversation of an agent as messages of the API, rebuilt from the log for each request.

What it writes only ever grows: the same log gives the same bytes, and a longer one begins with
them. A model is shown its own thinking again, and refuses a conversation that was changed before
it; the cache of the API rests on the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from runner.conversation import REFUSED, Result, Said, Told, call_name
from runner.loop import Loop
from runner.messages.draft import CHARACTERS_PER_TOKEN, clean
from runner.tools import Tool

Block = dict[str, Any]
UNANSWERED = "Given up: the run was stopped or taken up again before this call was answered."
NOTHING = "(nothing)"
BREAKPOINT = {"type": "ephemeral"}


def messages(loop: Loop, last_words: str = "") -> list[Block]:
    """The context under way; `last_words` are told to the model at its end and are in no log."""
    conversation = loop.conversation
    found: list[Block] = []
    waiting: dict[str, str] = {}  # the provider's id of each call of the last turn, by its name
    results: dict[str, Result] = {}
    texts = [conversation.brief]
    for entry in conversation.entries:
        match entry:
            case Result():
                results[entry.call] = entry
            case Told():
                texts.append(entry.text)
            case Said():
                _add(found, "user", _answers(waiting, results, texts))
                turn = loop.turn(entry.sha256)
                # a refused turn may not be shown again
                _add(found, "assistant", [] if turn.stop == REFUSED else list(turn.content))
                names = (call_name(entry.seq, index) for index in range(len(turn.calls)))
                waiting = {name: call.id for name, call in zip(names, turn.calls, strict=True)}
                results, texts = {}, []
    _add(found, "user", _answers(waiting, results, [*texts, last_words]))
    return found


def cached(found: list[Block]) -> list[Block]:
    """The messages with a breakpoint of the cache at the end of the last two of the user.

    The last but one is where the request before ended, so that it is found again however many
    blocks have come since.
    """
    marked = list(found)
    users = [number for number, message in enumerate(found) if message["role"] == "user"]
    for number in users[-2:]:
        *blocks, last = found[number]["content"]
        content = [*blocks, {**last, "cache_control": BREAKPOINT}]
        marked[number] = {**found[number], "content": content}
    return marked


def told(text: str) -> Block:
    """A message of the user alone."""
    return {"role": "user", "content": [_text(text)]}


def system(text: str) -> list[Block]:
    """The system prompt, behind which tools and prompt are cached."""
    return [{**_text(text), "cache_control": BREAKPOINT}]


def tools(offered: Iterable[Tool]) -> list[Block]:
    """The tools as the API takes them."""
    return [
        {"name": each.name, "description": each.description, "input_schema": each.schema}
        for each in offered
    ]


def tokens(found: list[Block]) -> int:
    """How many tokens there are in it, estimated from the length: too many rather than too few."""
    return len(json.dumps(found, ensure_ascii=False)) // CHARACTERS_PER_TOKEN


def _answers(waiting: dict[str, str], results: dict[str, Result], texts: list[str]) -> list[Block]:
    """What the user says between two turns: the results first, in the order of the calls."""
    answered = [_result(each, results.get(name)) for name, each in waiting.items()]
    return [*answered, *(_text(text) for text in texts if text.strip())]


def _result(provider_id: str, result: Result | None) -> Block:
    text = UNANSWERED if result is None else result.text or NOTHING
    block: Block = {"type": "tool_result", "tool_use_id": provider_id, "content": clean(text)}
    if result is None or not result.ok:
        block["is_error"] = True
    return block


def _text(text: str) -> Block:
    return {"type": "text", "text": clean(text)}


def _add(found: list[Block], role: str, content: list[Block]) -> None:
    """Append a message, or extend the last one: roles alternate and no message is empty."""
    if not content:
        return
    if found and found[-1]["role"] == role:
        found[-1] = {"role": role, "content": [*found[-1]["content"], *content]}
    else:
        found.append({"role": role, "content": content})
