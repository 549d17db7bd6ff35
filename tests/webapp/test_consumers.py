from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries, Settings

from runner.events import MessagePayload, NotePayload, RunPayload, RunStatus
from tests.factories import make_event, make_run, make_user
from webapp.asgi import application
from webapp.runs import feed, nudges
from webapp.runs.log import DatabaseLog
from webapp.runs.models import Run
from webapp.runs.nudges import hint_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]
ORIGIN = b"http://localhost"
FRAMES = 20  # heartbeats come for ever: so many are waited through


class Socket:
    """A browser's side of the socket: collects what arrives until something is true."""

    def __init__(self, address: str, user: User | None, origin: bytes = ORIGIN) -> None:
        headers = [(b"origin", origin), (b"host", b"localhost")]
        if user is not None:
            client = Client()
            client.force_login(user)
            cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
            headers.append((b"cookie", f"{settings.SESSION_COOKIE_NAME}={cookie}".encode()))
        path, _, query = address.partition("?")
        scope = {
            "type": "websocket",
            "path": path,
            "query_string": query.encode(),
            "headers": headers,
            "subprotocols": [],
        }
        self.app = ApplicationCommunicator(application, scope)
        self.frames: list[dict[str, Any]] = []

    async def open(self) -> tuple[bool, int | None]:
        """Whether we were let in, and the close code if not."""
        await self.app.send_input({"type": "websocket.connect"})
        answer = await self.app.receive_output(timeout=5)
        return answer["type"] == "websocket.accept", answer.get("code")

    async def send(self, text: str) -> None:
        await self.app.send_input({"type": "websocket.receive", "text": text})

    async def until(self, seq: int) -> list[int]:
        """The seqs that arrived once `seq` is among them."""
        while seq not in (seqs := self.seqs):
            await self.next()
        return seqs

    async def next(self) -> dict[str, Any]:
        message = await self.app.receive_output(timeout=5)
        assert message["type"] == "websocket.send"
        self.frames.append(json.loads(message["text"]))
        return self.frames[-1]

    async def said(self) -> dict[str, Any]:
        """The next frame that holds text of a turn under way."""
        for _ in range(FRAMES):
            if (frame := await self.next())["type"] == "text":
                return frame
        raise AssertionError(f"{FRAMES} frames, and none holds what is being said")

    @property
    def seqs(self) -> list[int]:
        events = [frame for frame in self.frames if frame["type"] == "events"]
        return [item["seq"] for frame in events for item in frame["items"]]

    async def close(self) -> None:
        await self.app.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.app.wait(timeout=5)


@pytest.fixture
async def sockets() -> AsyncIterator[Any]:
    opened: list[Socket] = []

    async def connect(run: Run, after: object = 0) -> Socket:
        user = await sync_to_async(make_user)()
        address = f"/ws/runs/{run.pk}/?after={after}"
        socket = await sync_to_async(Socket)(address, user)
        assert (await socket.open())[0]
        opened.append(socket)
        return socket

    yield connect
    for socket in opened:
        await socket.close()


async def run_with_notes(count: int) -> tuple[Run, DatabaseLog]:
    def make() -> tuple[Run, DatabaseLog]:
        run = make_run("running")
        for index in range(count):
            make_event(run, NotePayload("ada", f"note {index}"))
        token = Run.objects.take(run.pk, "this test")
        assert token is not None
        return run, DatabaseLog(run, token)

    return await sync_to_async(make)()


async def emit(log: DatabaseLog, count: int) -> None:
    def write() -> None:
        for index in range(count):
            log.emit(NotePayload("grace", f"live {index}"))

    await sync_to_async(write)()


async def test_a_reader_gets_the_past_then_what_comes(sockets: Any) -> None:
    run, log = await run_with_notes(3)
    socket = await sockets(run)
    assert await socket.until(4) == [1, 2, 3, 4]

    await emit(log, 2)

    assert await socket.until(6) == [1, 2, 3, 4, 5, 6]
    item = socket.frames[-1]["items"][-1]
    assert set(item) == {"seq", "type", "at", "html"}
    assert "live 1" in item["html"]
    assert socket.frames[-1]["status"] == "running"


async def test_a_reader_who_comes_back_gets_only_what_was_missed(sockets: Any) -> None:
    run, log = await run_with_notes(5)
    first = await sockets(run, after=4)
    assert await first.until(6) == [5, 6]
    await first.close()

    await emit(log, 3)
    again = await sockets(run, after=6)

    assert await again.until(9) == [7, 8, 9]


async def test_a_long_past_comes_in_batches_without_gaps(sockets: Any) -> None:
    run, _ = await run_with_notes(250)

    socket = await sockets(run)

    assert await socket.until(251) == list(range(1, 252))
    sizes = [len(frame["items"]) for frame in socket.frames if frame["type"] == "events"]
    assert max(sizes) <= 100


async def test_a_burst_reaches_every_reader_once_and_in_order(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    readers = [await sockets(run) for _ in range(5)]

    await emit(log, 300)

    for reader in readers:
        assert await reader.until(301) == list(range(1, 302))
        frames = [frame for frame in reader.frames if frame["type"] == "events"]
        assert len(frames) < 300, "a burst must be coalesced"


async def test_an_event_whose_nudge_was_lost_still_arrives(sockets: Any) -> None:
    run, _ = await run_with_notes(0)
    socket = await sockets(run)
    await socket.until(1)

    await sync_to_async(make_event)(run, NotePayload("ada", "no nudge for this one"))

    assert await socket.until(2) == [1, 2]


async def test_the_heartbeat_says_where_the_run_stands(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    socket = await sockets(run, after=1)

    beat = await socket.next()

    assert beat["type"] == "heartbeat"
    assert (beat["last_seq"], beat["status"]) == (1, "running")
    assert beat["now"].endswith("+00:00")
    end = RunPayload(RunStatus.finished, "done")
    await sync_to_async(log.emit)(end)
    assert await socket.until(2) == [2]
    assert socket.frames[-1]["status"] == "finished"


async def test_a_run_that_only_changes_its_reason_tells_so(sockets: Any) -> None:
    run, _ = await run_with_notes(0)
    socket = await sockets(run, after=1)
    await socket.next()

    await sync_to_async(Run.objects.filter(pk=run.pk).update)(status="queued", reason="waiting: x")

    while (beat := await socket.next())["status"] != "queued":
        assert len(socket.frames) < FRAMES
    assert beat["reason"] == "waiting: x"


async def hint(log: DatabaseLog, text: str) -> None:
    await sync_to_async(log.hint)(text)


async def hear(socket: Socket, log: DatabaseLog, text: str) -> dict[str, Any]:
    """Hint until it arrives: what is said before the feed listens is lost, as hints may be."""
    for _ in range(FRAMES):
        await hint(log, text)
        frame = await socket.next()
        if frame["type"] == "text" and frame["text"] == text:
            return frame
    raise AssertionError(f"{text!r} was said {FRAMES} times, and did not arrive")


async def test_a_reader_sees_what_is_being_said_until_the_next_event(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    await emit(log, 1)
    socket = await sockets(run)
    await socket.until(2)

    assert await hear(socket, log, "Wider vec") == {"type": "text", "after": 2, "text": "Wider vec"}
    await hear(socket, log, "Wider vectors <b>hide</b> it")
    late = await sockets(run, after=2)
    assert (await late.said())["text"] == "Wider vectors <b>hide</b> it"

    await sync_to_async(log.emit)(MessagePayload("claude", "Wider vectors hide it."))
    await socket.until(3)
    after = await sockets(run, after=3)
    for _ in range(2):
        assert (await after.next())["type"] == "heartbeat"


async def test_what_was_said_before_the_last_event_is_not_shown_after_it(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    await emit(log, 1)
    socket = await sockets(run, after=2)
    assert (await socket.next())["type"] == "heartbeat"
    await sync_to_async(log.emit)(MessagePayload("claude", "said"))
    await socket.until(3)

    await sync_to_async(hint_run)(run.pk, 2, "sai")  # overtaken by its own event
    await hear(socket, log, "next")

    assert [frame["text"] for frame in socket.frames if frame["type"] == "text"] == ["next"]


async def test_a_person_s_note_does_not_end_what_is_being_said(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    await sync_to_async(log.emit)(MessagePayload("claude", "said"))
    socket = await sockets(run)
    await socket.until(2)
    await hear(socket, log, "thinking aloud")

    await sync_to_async(run.refresh_from_db)()
    await sync_to_async(make_event)(run, NotePayload("ada", "a note"))

    await socket.until(3)
    assert await socket.said() == {"type": "text", "after": 3, "text": "thinking aloud"}


async def test_a_run_that_its_driver_lets_go_says_nothing_more(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    await emit(log, 1)
    socket = await sockets(run)
    await socket.until(2)
    await hear(socket, log, "half a sent")

    await sync_to_async(Run.objects.filter(pk=run.pk).update)(status="queued")

    assert (await socket.said())["text"] == ""


async def test_a_flood_of_hints_becomes_a_few_and_the_last_is_among_them(sockets: Any) -> None:
    run, log = await run_with_notes(0)
    await emit(log, 1)
    socket = await sockets(run)
    await socket.until(2)
    await hear(socket, log, "a beginning")
    words = "x" * 10_000

    def flood() -> float:
        began = time.monotonic()
        for index in range(2000):
            log.hint(f"{words}{index}")
        return time.monotonic() - began

    seconds = await sync_to_async(flood)()

    texts = []
    while not texts or not texts[-1].endswith("x1999"):
        texts.append((await socket.said())["text"])
    assert len(texts) <= 3 + seconds / nudges.HINT_EVERY_S
    assert {len(text) for text in texts} == {nudges.HINT_CHARACTERS}


async def test_a_hint_costs_nothing_where_no_layer_answers(settings: Settings) -> None:
    layer = settings.CHANNEL_LAYERS["default"] | {"CONFIG": {"hosts": ["unix:///nowhere.sock"]}}
    settings.CHANNEL_LAYERS = {"default": layer}
    _, log = await run_with_notes(0)

    began = time.monotonic()
    for index in range(100):
        log.hint(f"{index}")

    assert time.monotonic() - began < 0.5


@pytest.mark.parametrize("cut", [1, 2])
def test_the_frame_with_the_last_event_says_that_the_run_is_over(cut: int) -> None:
    """Even if that event is committed while the feed reads, before its first query or second."""
    run = make_run("running")
    made = 0

    def end_run(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
        nonlocal made
        made += 1
        if made == cut:
            make_event(run, RunPayload(RunStatus.finished, "done"))
        return execute(sql, params, many, context)

    with connection.execute_wrapper(end_run):
        reading = feed.read_rows(run.pk, 0, 100)

    assert made > cut, "the reading has fewer queries than that"
    last = reading.items[-1].seq
    assert last == (2 if cut == 1 else 1)
    assert (reading.standing.last_seq, reading.standing.status) == (2, "finished")


async def test_a_seq_from_the_future_or_no_number_harms_nobody(sockets: Any) -> None:
    run, _ = await run_with_notes(0)
    ahead = await sockets(run, after=10**30)
    assert (await ahead.next())["type"] == "heartbeat"

    odd = await sockets(run, after="x; drop")
    assert await odd.until(1) == [1]


async def test_strangers_other_sites_and_unknown_runs_are_refused() -> None:
    run, _ = await run_with_notes(0)
    address = f"/ws/runs/{run.pk}/"
    user = await sync_to_async(make_user)()

    assert (await Socket(address, None).open())[0] is False
    evil = await sync_to_async(Socket)(address, user, b"http://evil.example")
    assert (await evil.open())[0] is False
    unknown = await sync_to_async(Socket)("/ws/runs/987654/", user)
    assert (await unknown.open()) == (False, 4404)


async def test_what_a_client_sends_changes_nothing(sockets: Any) -> None:
    run, _ = await run_with_notes(0)
    socket = await sockets(run)
    await socket.until(1)

    await socket.send('{"type": "stop"}')
    await asyncio.sleep(0.1)

    stored = await sync_to_async(Run.objects.get)(pk=run.pk)
    assert stored.status == "running"
    assert not await sync_to_async(stored.requests.exists)()


def test_reading_many_events_costs_as_few_queries_as_reading_one(
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    run = make_run("running", candidates=12)

    for limit in (1, 60):
        with django_assert_max_num_queries(5):
            assert len(feed.read_rows(run.pk, 0, limit).items) == min(limit, run.last_seq)
