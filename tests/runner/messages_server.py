"""A Messages API of our own for tests: streams what a script says, with the faults it asks for.

It refuses what the real one refuses (`messages_rules`), counts tokens and what its cache would have
held, and records every request. By hand:

    python -m tests.runner.messages_server --port 8099
    ANTHROPIC_BASE_URL=http://127.0.0.1:8099 ANTHROPIC_API_KEY=test …

plays an optimisation of softmax on the host.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.runner import messages_rules as rules

KEY = "sk-ant-test-0123456789abcdef"
CHUNK = 24  # characters of a delta
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Thinking:
    """Its signature is made by the server; `redacted` hides its text."""

    text: str
    redacted: bool = False


@dataclass(frozen=True)
class ToolUse:
    """`raw` is streamed in place of the input's JSON: a malformed input."""

    name: str
    input: dict[str, Any] = field(default_factory=dict)
    raw: str | None = None


Block = Text | Thinking | ToolUse


@dataclass(frozen=True)
class Reply:
    """`stop` is `tool_use` where a tool is called, else `end_turn`. `tokens`: those of the output.

    `pace_s` passes between two events; before the first block come `pings`, `gap_s` apart.
    """

    blocks: tuple[Block, ...]
    stop: str = ""
    refused_as: str = ""
    tokens: int | None = None
    pace_s: float = 0.0
    pings: int = 0
    gap_s: float = 0.0


@dataclass(frozen=True)
class Status:
    """An error instead of a reply; `within` a stream that had begun."""

    code: int
    retry_after: str = ""
    message: str = "as the script says"
    within: bool = False


@dataclass(frozen=True)
class Drop:
    """The connection breaks after so many events of the reply."""

    reply: Reply
    events: int


@dataclass(frozen=True)
class Silent:
    """The stream opens, and after so many events of the reply nothing more comes."""

    seconds: float
    reply: Reply = Reply(())
    events: int = 0


Response = Reply | Status | Drop | Silent
Script = Callable[[dict[str, Any]], Response]


def reply(*blocks: Block, **settings: Any) -> Reply:
    return Reply(blocks, **settings)


def context_exceeded() -> Status:
    return Status(400, message="prompt is too long: 1000123 tokens > 1000000 maximum")


def softmax_optimisation(pace_s: float = 0.0) -> Script:
    """Plays an agent that optimises softmax on the host; see `messages_script`."""
    from tests.runner import messages_script

    return messages_script.softmax_optimisation(pace_s)


class MessagesServer:
    """Serves a script on a port of this host. `window_tokens` is how much a prompt may have.

    `requests` are the bodies it was sent, those too that it refused, `headers` their headers.
    """

    def __init__(
        self,
        script: Iterable[Response] | Script,
        *,
        port: int = 0,
        key: str = KEY,
        window_tokens: int = 1_000_000,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.refused: list[str] = []
        self.key = key
        self._window_tokens = window_tokens
        self._script = script if callable(script) else _in_order(script)
        self._cached: set[str] = set()
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> MessagesServer:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, headers: dict[str, str], request: Any) -> Response | rules.Refusal:
        """What the script says to a request that the rules let pass."""
        with self._lock:
            self.requests.append(request)
            self.headers.append(headers)
            refused = rules.refusal(headers, request, self.key)
            if refused is None and (tokens := _tokens(request)) > self._window_tokens:
                message = f"prompt is too long: {tokens} tokens > {self._window_tokens} maximum"
                refused = rules.Refusal(400, "invalid_request_error", message)
            if refused is not None:
                self.refused.append(refused.message)
                return refused
            return self._script(request)

    def events(self, request: dict[str, Any], said: Reply) -> Iterator[dict[str, Any]]:
        """The events of a reply, as the API streams them."""
        usage = self._usage(request)
        message = {"id": f"msg_{next(self._ids)}", "type": "message", "role": "assistant"}
        message |= {"model": request["model"], "content": [], "stop_reason": None}
        yield {"type": "message_start", "message": {**message, "usage": usage}}
        for _ in range(said.pings):
            self._closing.wait(said.gap_s)
            yield {"type": "ping"}
        blocks: list[dict[str, Any]] = []
        for index, block in enumerate(said.blocks):
            yield from self._block_events(request, index, block, blocks)
        stop = said.stop or ("tool_use" if any(isinstance(b, ToolUse) for b in said.blocks) else "")
        spoken = json.dumps(blocks)
        tokens = said.tokens or max(1, len(spoken) // CHARACTERS_PER_TOKEN)
        delta: dict[str, Any] = {"stop_reason": stop or "end_turn", "stop_sequence": None}
        if said.refused_as:
            delta["stop_details"] = {"type": "refusal", "category": said.refused_as}
        yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": tokens}}
        yield {"type": "message_stop"}

    def pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the server."""
        self._closing.wait(seconds)

    def _block_events(
        self, request: dict[str, Any], index: int, block: Block, blocks: list[dict[str, Any]]
    ) -> Iterator[dict[str, Any]]:
        """Stream one block, and append it to `blocks` as it will have to come back."""
        start: dict[str, Any]
        deltas: list[dict[str, Any]]
        match block:
            case Text(text):
                start = {"type": "text", "text": ""}
                deltas = [{"type": "text_delta", "text": part} for part in _parts(text)]
                whole = {"type": "text", "text": text}
            case Thinking(text, redacted):
                hidden = "" if redacted else text
                signed = rules.signature(request, len(request["messages"]), blocks, hidden)
                if redacted:
                    start = whole = {"type": "redacted_thinking", "data": signed}
                    deltas = []
                else:
                    start = {"type": "thinking", "thinking": "", "signature": ""}
                    deltas = [{"type": "thinking_delta", "thinking": p} for p in _parts(text)]
                    deltas.append({"type": "signature_delta", "signature": signed})
                    whole = {"type": "thinking", "thinking": text, "signature": signed}
            case ToolUse(name, arguments, raw):
                digest = hashlib.sha256(json.dumps(request["messages"]).encode()).hexdigest()
                identity = f"toolu_{digest[:16]}_{index}"
                start = {"type": "tool_use", "id": identity, "name": name, "input": {}}
                streamed = json.dumps(arguments) if raw is None else raw
                deltas = [
                    {"type": "input_json_delta", "partial_json": p} for p in ["", *_parts(streamed)]
                ]
                whole = {**start, "input": arguments}
        blocks.append(whole)
        yield {"type": "content_block_start", "index": index, "content_block": start}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}

    def _usage(self, request: dict[str, Any]) -> dict[str, int]:
        """Input tokens by what the cache holds: the longest prefix that ended in a breakpoint."""
        total, read, last = _tokens(request), 0, 0
        for prefix in _prefixes(request):
            tokens = min(total, len(prefix) // CHARACTERS_PER_TOKEN)
            digest = hashlib.sha256(prefix.encode()).hexdigest()
            if digest in self._cached:
                read = tokens
            self._cached.add(digest)
            last = tokens
        return {
            "input_tokens": total - last,
            "cache_read_input_tokens": read,
            "cache_creation_input_tokens": last - read,
            "output_tokens": 1,
        }


def _in_order(responses: Iterable[Response]) -> Script:
    remaining = iter(responses)
    over = Status(400, message="the script of the test server is over")
    return lambda request: next(remaining, over)


def _parts(text: str) -> list[str]:
    return [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]


def _plain(request: dict[str, Any]) -> list[Any]:
    return [request.get("tools", []), request.get("system", []), request["messages"]]


def _tokens(request: dict[str, Any]) -> int:
    return len(json.dumps(rules.without_breakpoints(_plain(request)))) // CHARACTERS_PER_TOKEN


def _prefixes(request: dict[str, Any]) -> Iterator[str]:
    """The request up to each breakpoint, shortest first."""
    blocks = [("tool", each) for each in request.get("tools", [])]
    blocks += [("system", each) for each in request.get("system", [])]
    for message in request["messages"]:
        blocks += [(message["role"], each) for each in message["content"]]
    text = ""
    for role, block in blocks:
        text += role + json.dumps(rules.without_breakpoints(block))
        if "cache_control" in block:
            yield text


def _handler(server: MessagesServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.path.partition("?")[0] != "/v1/messages":
                self._refuse(404, "not_found_error", f"{self.path} is not here")
                return
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = json.loads(body.decode("utf-8"))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self._respond(request, server.answer(headers, request))

        def _respond(self, request: dict[str, Any], response: Response | rules.Refusal) -> None:
            match response:
                case rules.Refusal(status, kind, message):
                    self._refuse(status, kind, message)
                case Status(within=True):
                    self._begin()
                    opening = next(server.events(request, Reply(())))
                    self._send(opening)
                    self._send(_error(_kind(response.code), response.message))
                case Status(code, retry_after, message):
                    self._refuse(code, _kind(code), message, retry_after)
                case Drop(said, most):
                    self._stream(request, said, most)
                    self.close_connection = True
                case Silent(seconds, said, most):
                    self._stream(request, said, most)
                    server.pause(seconds)
                    self.close_connection = True
                case Reply():
                    self._stream(request, response, None)
                    self._write(b"0\r\n\r\n")
                case _:
                    self._refuse(500, "api_error", f"the script gave {response!r}")

        def _stream(self, request: dict[str, Any], said: Reply, most: int | None) -> None:
            self._begin()
            for event in itertools.islice(server.events(request, said), most):
                self._send(event)
                if said.pace_s:
                    server.pause(said.pace_s)

        def _begin(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream; charset=utf-8")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()

        def _send(self, event: dict[str, Any]) -> None:
            data = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            self._write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

        def _refuse(self, status: int, kind: str, message: str, retry_after: str = "") -> None:
            data = json.dumps(_error(kind, message)).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            if retry_after:
                self.send_header("retry-after", retry_after)
            self.end_headers()
            self._write(data)

        def _write(self, data: bytes) -> None:
            self.wfile.write(data)
            self.wfile.flush()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Quiet."""

    return Handler


def _error(kind: str, message: str) -> dict[str, Any]:
    return {"type": "error", "error": {"type": kind, "message": message}}


def _kind(status: int) -> str:
    return {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "invalid_request_error",
        429: "rate_limit_error",
        529: "overloaded_error",
    }.get(status, "api_error")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--port", type=int, default=8099)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds between two events")
    parser.add_argument("--key", default="test", help="the key that it takes")
    arguments = parser.parse_args()
    script = softmax_optimisation(arguments.pace)
    with MessagesServer(script, port=arguments.port, key=arguments.key) as server:
        print(f"ANTHROPIC_BASE_URL={server.url} ANTHROPIC_API_KEY={arguments.key}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                time.sleep(3600)


if __name__ == "__main__":
    from tests.runner import messages_server  # the module that scripts know, not this second one

    messages_server.main()
