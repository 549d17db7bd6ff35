"""What the Messages API refuses, for the server of the tests: rules that our requests can break.

Stands in for the real API's validation, so that a request which that would answer with 400 fails
here too. Signatures are bound to the conversation before them, as those of today's models are.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

VERSIONS = {"2023-06-01", "2026-10-21"}
FIELDS = {
    "model",
    "max_tokens",
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "stream",
    "metadata",
    "cache_control",
    "stop_sequences",
}
EFFORTS = {"low", "medium", "high", "xhigh", "max"}
MOST_BREAKPOINTS = 4
_TOOL_NAME = re.compile(r"^[a-zA-Z0-9_-]{1,128}$")


@dataclass(frozen=True)
class Refusal:
    """An error as the API answers it."""

    status: int
    kind: str
    message: str


class Broken(Exception):
    """A rule of the API is broken; the message is what it says then."""


def refusal(headers: Mapping[str, str], request: Any, key: str) -> Refusal | None:
    """Why the API would refuse a request, None if it would not."""
    sent = headers.get("x-api-key") or (headers.get("authorization") or "").removeprefix("Bearer ")
    if not sent:
        return Refusal(401, "authentication_error", "x-api-key header is required")
    if sent != key:
        return Refusal(401, "authentication_error", "invalid x-api-key")
    try:
        _check_headers(headers)
        _check_request(request)
        _check_messages(request)
    except Broken as error:
        return Refusal(400, "invalid_request_error", str(error))
    return None


def signature(request: dict[str, Any], before: int, blocks: list[dict[str, Any]], text: str) -> str:
    """Of a thinking block: it holds for this text, behind these blocks and so many messages."""
    prefix = {
        "system": request.get("system"),
        "tools": request.get("tools"),
        "messages": request["messages"][:before],
        "blocks": blocks,
        "text": text,
    }
    plain = json.dumps(without_breakpoints(prefix), sort_keys=True)
    return "sig_" + hashlib.sha256(plain.encode()).hexdigest()


def without_breakpoints(value: Any) -> Any:
    """The value without the marks of the cache, which belong to no content."""
    if isinstance(value, list):
        return [without_breakpoints(each) for each in value]
    if isinstance(value, dict):
        return {n: without_breakpoints(v) for n, v in value.items() if n != "cache_control"}
    return value


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise Broken(message)


def _check_headers(headers: Mapping[str, str]) -> None:
    _require(headers.get("anthropic-version") in VERSIONS, "anthropic-version: header is required")
    kind = headers.get("content-type", "")
    _require(kind.startswith("application/json"), "content-type: must be application/json")


def _check_request(request: Any) -> None:
    _require(isinstance(request, dict), "the body must be an object")
    for name in request:
        _require(name in FIELDS, f"{name}: Extra inputs are not permitted")
    _require(isinstance(request.get("model"), str) and request["model"] != "", "model: required")
    limit = request.get("max_tokens")
    _require(isinstance(limit, int) and limit >= 1, "max_tokens: must be at least 1")
    _require(request.get("stream") is True, "stream: this server only streams")
    thinking = request.get("thinking", {"type": "adaptive"})
    _require(thinking.get("type") == "adaptive", f"thinking.type.{thinking.get('type')}: no")
    display = thinking.get("display", "omitted")
    _require(display in {"summarized", "omitted"}, f"thinking.display: {display}")
    effort = request.get("output_config", {}).get("effort", "medium")
    _require(effort in EFFORTS, f"output_config.effort: {effort}")
    choice = request.get("tool_choice", {"type": "auto"})["type"]
    _require(choice in {"auto", "none"}, f"tool_choice.{choice}: is not supported for this model")
    _check_tools(request.get("tools", []))
    marks = json.dumps(request).count('"cache_control"')
    _require(marks <= MOST_BREAKPOINTS, f"cache_control: at most {MOST_BREAKPOINTS}, found {marks}")
    for block in request.get("system", []) if isinstance(request.get("system"), list) else []:
        _require(bool(block["text"].strip()), "system: text content blocks must be non-empty")


def _check_tools(tools: list[dict[str, Any]]) -> None:
    names = [tool.get("name", "") for tool in tools]
    _require(len(set(names)) == len(names), "tools: Tool names must be unique.")
    for tool in tools:
        _require(bool(_TOOL_NAME.match(tool.get("name", ""))), "tools.name: does not match")
        kind = tool.get("input_schema", {}).get("type")
        _require(kind == "object", "tools.input_schema.type: must be object")


def _check_messages(request: dict[str, Any]) -> None:
    messages = request.get("messages")
    _require(isinstance(messages, list) and messages != [], "messages: at least one is required")
    assert isinstance(messages, list)
    _require(messages[0].get("role") == "user", "messages: first message must use the user role")
    _require(messages[-1]["role"] == "user", "messages: must end with a user message")
    for number, message in enumerate(messages):
        where = f"messages.{number}"
        _require(message.get("role") in {"user", "assistant"}, f"{where}.role: unknown")
        if number:
            # the API merges what follows from one role; ours is to write it as one
            _require(message["role"] != messages[number - 1]["role"], f"{where}: roles alternate")
        content = message.get("content")
        _require(isinstance(content, list) and content != [], f"{where}: content is required")
        _check_texts(where, content)
        if message["role"] == "assistant":
            _check_thinking(request, number)
        wanted = _called(messages[number - 1]) if number else []
        _check_results(where, wanted, content)
    used = [call for message in messages for call in _called(message)]
    _require(len(set(used)) == len(used), "messages: `tool_use` ids must be unique")


def _check_texts(where: str, content: list[dict[str, Any]]) -> None:
    for block in content:
        if block["type"] == "text":
            _require(bool(block["text"].strip()), f"{where}: text content blocks must be non-empty")
        if block["type"] in {"thinking", "redacted_thinking"}:
            _require("cache_control" not in block, f"{where}: cache_control on thinking")
        if block["type"] == "tool_use":
            _require(isinstance(block["input"], dict), f"{where}.tool_use.input: no dictionary")


def _check_thinking(request: dict[str, Any], number: int) -> None:
    """Thinking comes back with its signature, unchanged, behind what stood before it."""
    blocks: list[dict[str, Any]] = []
    for index, block in enumerate(request["messages"][number]["content"]):
        if block["type"] in {"thinking", "redacted_thinking"}:
            redacted = block["type"] == "redacted_thinking"
            text, given = (
                ("", block["data"]) if redacted else (block["thinking"], block["signature"])
            )
            if given != signature(request, number, blocks, text):
                where = (
                    f"messages.{number}.content.{index}: Invalid `signature` in `thinking` block."
                )
                raise Broken(f"{where} The block is bound to a different conversation.")
        blocks.append(block)


def _called(message: dict[str, Any]) -> list[str]:
    content = message["content"] if message["role"] == "assistant" else []
    return [block["id"] for block in content if block["type"] == "tool_use"]


def _check_results(where: str, wanted: list[str], content: list[dict[str, Any]]) -> None:
    """Every call is answered in the next message, and before anything else is said in it."""
    answered = [b["tool_use_id"] for b in content if b["type"] == "tool_result"]
    missing = [call for call in wanted if call not in answered]
    lost = f"`tool_use` ids were found without `tool_result` blocks immediately after: {missing}"
    _require(not missing, f"{where}: {lost}")
    for call in answered:
        _require(call in wanted, f"{where}: unexpected `tool_use_id` {call}")
    _require(len(set(answered)) == len(answered), f"{where}: each tool_use must have one result")
    head = [block["type"] for block in content[: len(answered)]]
    _require(set(head) <= {"tool_result"}, f"{where}: `tool_result` blocks must come first")
