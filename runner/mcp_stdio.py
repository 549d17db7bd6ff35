"""A run for one outside agent on this machine, over standard input and output, with no web.

The agent's client starts this process and speaks the protocol with it; the run is driven beside
it, in a thread. It is over when the client hangs up, calls finish, or a budget ends. Owns where
calls wait for their answers here; how they look in the protocol is mcp_server's.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

from mcp.server.stdio import stdio_server

from runner import launch, mcp_server
from runner.agents.external import (
    Awaited,
    ExternalAgent,
    Reply,
    ToolRequest,
    last_number,
    over,
    refused,
    turn_of,
)
from runner.drive import drive
from runner.events import ControlAction, ControlPayload, Event, EventType, MessageKind
from runner.examination import LocalExaminer
from runner.local import LocalEvaluator, TerminalControl
from runner.log import FileLog
from runner.mcp_server import Report
from runner.partial import Partial
from runner.spec import RunSpec
from runner.state import RunState
from runner.terminal import Narrator, tell

LINGER_S = 0.5  # after the run's last event, so that the answers under way are out
REPORT_S = 2.0
CHUNK = 64 * 1024
GIVEN_UP = refused("run", "was given up.", "Start a new one.")


def run(options: argparse.Namespace, device: str) -> RunState:
    """Do the run that the arguments ask for; raises SpecError where it cannot be done.

    Standard output is the protocol's alone.
    """
    spec = launch.specify(options, device)
    spec.validate()
    partial = launch.open_partial(options, spec)
    with partial.held():
        return _run(spec, partial)


def _run(spec: RunSpec, partial: Partial) -> RunState:
    """Serve and drive; the archive is written however the run ends."""
    cancel = threading.Event()
    control = TerminalControl(partial.requests, cancel, tell)
    control.install()
    desk = LocalDesk(spec, Narrator().watch)
    log = partial.log(desk.hear)
    desk.take_up(log)
    evaluator = LocalEvaluator(cancel, desk.work)

    def hang_up() -> None:
        """The client has gone: the run stops, and what is under way is given up for it."""
        partial.requests.add(_stop)
        cancel.set()

    try:
        work = functools.partial(_drive, desk, log, evaluator, control)
        asyncio.run(_serve(desk, work, hang_up))
    finally:
        state = launch.conclude(partial, log)
    return state


def _stop(earlier: tuple[ControlPayload, ...]) -> ControlPayload:
    by = "the agent's client, which hung up"
    return ControlPayload(ControlAction.stop, by, request=len(earlier) + 1)


def _drive(
    desk: LocalDesk, log: FileLog, evaluator: LocalEvaluator, control: TerminalControl
) -> None:
    agent = ExternalAgent(desk)
    examiner = LocalExaminer()
    try:
        drive(desk.spec, log, evaluator, control, create=lambda spec: agent, examiner=examiner)
    finally:
        state = RunState.from_events(log.history())
        desk.close(over(state.status, state.reason) if state.status.ended else GIVEN_UP)


async def _serve(desk: LocalDesk, work: Callable[[], None], hang_up: Callable[[], None]) -> None:
    """Speak with the client and drive beside it, until either is over."""
    lines = Lines()
    server = mcp_server.serve(desk)
    driving = asyncio.create_task(asyncio.to_thread(work))
    try:
        async with stdio_server(stdin=lines) as (read, write):  # type: ignore[arg-type]
            options = server.create_initialization_options()
            serving = asyncio.create_task(server.run(read, write, options))
            await asyncio.wait([driving, serving], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                await asyncio.sleep(LINGER_S)
                lines.close()
            await serving
    finally:
        if not driving.done():
            hang_up()
        await driving


class Lines:
    """The lines of standard input, read by a thread that nobody waits for at the end.

    From then on nothing else in this process, and no child of it, can read from there.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        wire, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        threading.Thread(target=self._read, args=(wire,), name="input", daemon=True).start()

    async def __aiter__(self) -> AsyncIterator[str]:
        while (line := await self._lines.get()) is not None:
            yield line

    def close(self) -> None:
        """To whoever iterates, the input ends here."""
        self._lines.put_nowait(None)

    def _read(self, wire: int) -> None:
        rest = b""
        while chunk := os.read(wire, CHUNK):
            *whole, rest = (rest + chunk).split(b"\n")
            for line in whole:
                self._put(line.decode("utf-8", "replace"))
        self._put(None)

    def _put(self, line: str | None) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)


class LocalDesk:
    """Implements runner.mcp_server.Desk and runner.agents.external.Inbox, in memory.

    Calls come in on the server's event loop; the driver's thread takes them, and tells events.
    """

    def __init__(self, spec: RunSpec, watch: Callable[[Event], None]) -> None:
        self.spec = spec
        self._watch = watch
        self._lock = threading.Lock()
        self._log: FileLog
        self._earlier = 0  # requests that an earlier process took up
        self._requests: list[ToolRequest] = []
        self._waiting: dict[asyncio.Future[Reply], Awaited] = {}
        self._since: list[Event] = []  # the last result: the next answer begins with it
        self._over: Reply | None = None
        self._brief = ""
        self._phase = ""

    def take_up(self, log: FileLog) -> None:
        """Go on from the log of the run, which may have been driven before; first of all."""
        self._log = log
        for event in log.history():
            self._note(event)
            turn = turn_of(event, log.read)
            self._earlier = last_number(turn) if turn else self._earlier

    def next(self, after: int) -> ToolRequest | None:
        with self._lock:
            waiting = self._requests[max(after - self._earlier, 0) :]
            return waiting[0] if waiting else None

    async def call(self, tool: str, arguments: dict[str, Any], report: Report) -> Reply:
        answer = self._put(tool, arguments)
        while not answer.done():
            done, _ = await asyncio.wait([answer], timeout=REPORT_S)
            if not done:
                await report(self._phase or "at work")
        return answer.result()

    async def brief(self) -> str:
        return self._brief

    def work(self, phase: str) -> None:
        """Hears from the driver's thread what an evaluation is at."""
        self._phase = phase

    def hear(self, event: Event) -> None:
        """Hears every event, in the driver's thread, once it is written."""
        self._watch(event)
        with self._lock:
            for answer, awaited in list(self._waiting.items()):
                self._answer(answer, awaited.hear(event))
            self._note(event)

    def close(self, reply: Reply) -> None:
        """Nobody drives the run any more: whoever waits is told so, and whoever still asks."""
        with self._lock:
            self._over = reply
            for answer in list(self._waiting):
                self._answer(answer, reply)

    def _note(self, event: Event) -> None:
        """Keep what later answers and prompts begin with."""
        self._since.append(event)
        if event.payload.get("kind") == MessageKind.brief:
            self._brief = event.payload["text"]
        if event.type is EventType.tool_result:
            self._since.clear()
            self._phase = ""

    def _put(self, tool: str, arguments: dict[str, Any]) -> asyncio.Future[Reply]:
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        with self._lock:
            if self._over is not None:
                answer.set_result(self._over)
                return answer
            number = self._earlier + len(self._requests) + 1
            awaited = Awaited(number, self._log.read)
            for event in self._since:
                awaited.hear(event)
            self._waiting[answer] = awaited
            self._requests.append(ToolRequest(number, tool, arguments))
        return answer

    def _answer(self, answer: asyncio.Future[Reply], reply: Reply | None) -> None:
        if reply is not None:
            del self._waiting[answer]
            answer.get_loop().call_soon_threadsafe(_settle, answer, reply)


def _settle(answer: asyncio.Future[Reply], reply: Reply) -> None:
    if not answer.done():  # a client may have given the call up
        answer.set_result(reply)
