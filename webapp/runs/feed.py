"""Feed: the news of one run for all sockets of this process. One subscription, one read, one
rendering, however many watch.

The database is asked "what is after seq N?" on each nudge and every two seconds besides, so a lost
nudge costs at most that. What an agent is just saying comes with the messages themselves and is
never kept: the next event ends it. Who is told what, and when, is the socket's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass

from channels.db import database_sync_to_async
from channels.layers import get_channel_layer

from runner.events import EventType, RunStatus
from webapp.runs.models import Event, Run
from webapp.runs.nudges import run_group
from webapp.runs.rendering import render_event, render_events

logger = logging.getLogger(__name__)

POLL_S = 2.0
BATCH = 100  # events a frame
KEPT = 400  # rendered events kept for sockets that are a little behind
PAUSE_PER_SOCKET_S = 0.0002  # the more watch, the more events share a frame
LONGEST_PAUSE_S = 0.05
BESIDE_A_TURN = (EventType.note,)  # people write notes while an agent speaks


@dataclass(frozen=True)
class Item:
    """One event as a socket sends it: `text` is its JSON object, encoded once for all."""

    seq: int
    type: str
    text: str


@dataclass(frozen=True)
class Standing:
    """Where the run stands by its row."""

    last_seq: int
    status: str
    reason: str


@dataclass(frozen=True)
class Reading:
    standing: Standing
    items: tuple[Item, ...]


class Feed:
    """Use through `join`. `news` is set, and replaced, whenever there is anything new.

    `text` is what the agent has said so far in the turn under way, or empty. It is a model's:
    untrusted, and to be shown as text.
    """

    def __init__(self, pk: int) -> None:
        self.pk = pk
        self.sockets = 0
        self.news = asyncio.Event()
        self.standing: Standing | None = None
        self.text = ""
        self._items: list[Item] = []  # the latest, without gaps
        self._seq: int | None = None  # of the last item read; None before the first reading
        self._turn_seq = 0  # of the last item that ended a turn under way
        self._nudged = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._follow())]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def after(self, seq: int) -> tuple[Item, ...]:
        """At most one batch of what follows `seq`, from memory if it is still there."""
        if self._seq is not None and seq >= self._seq:
            return ()
        if self._items and self._items[0].seq <= seq + 1:
            start = seq + 1 - self._items[0].seq
            return tuple(self._items[start : start + BATCH])
        return (await _read(self.pk, seq, BATCH)).items

    async def _follow(self) -> None:
        while True:
            try:
                await self._read_on()
            except Exception:
                logger.exception("run %s could not be read; trying again", self.pk)
            await asyncio.sleep(min(PAUSE_PER_SOCKET_S * self.sockets, LONGEST_PAUSE_S))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), POLL_S)
            self._nudged.clear()

    async def _read_on(self) -> None:
        if self._seq is None:  # the past is each socket's own to ask for
            standing = (await _read(self.pk, 0, 0)).standing
            self._seq = self._turn_seq = standing.last_seq
            self._tell(standing)
            return
        more = True
        while more:
            reading = await _read(self.pk, self._seq, BATCH)
            more = len(reading.items) == BATCH
            if reading.items:
                self._items = [*self._items[-KEPT:], *reading.items]
                self._seq = reading.items[-1].seq
                self._end_turn(reading.items)
            if reading.items or reading.standing != self.standing:
                self._tell(reading.standing)

    def _tell(self, standing: Standing) -> None:
        self.standing = standing
        if standing.status != RunStatus.running:
            self.text = ""
        self._wake_sockets()

    def _wake_sockets(self) -> None:
        told, self.news = self.news, asyncio.Event()
        told.set()

    def _end_turn(self, items: tuple[Item, ...]) -> None:
        ending = [item.seq for item in items if item.type not in BESIDE_A_TURN]
        if ending:
            self._turn_seq, self.text = ending[-1], ""

    def _overhear(self, after: int, text: str) -> None:
        """Take up what is being said, unless the turn that it belongs to is over."""
        if self._seq is not None and after >= self._turn_seq and text != self.text:
            self.text = text
            self._wake_sockets()

    async def _listen(self) -> None:
        """Turn messages of the channel layer into wake-ups; outlives a layer that is away."""
        layer = get_channel_layer()
        while True:
            try:
                channel = await layer.new_channel()
                await layer.group_add(run_group(self.pk), channel)
                self._nudged.set()  # whatever came before we listened
                while True:
                    message = await layer.receive(channel)
                    if message["type"] == "hint":
                        self._overhear(message["after"], message["text"])
                    else:
                        self._nudged.set()
            except Exception as error:
                logger.warning("run %s: no nudges: %s: %s", self.pk, type(error).__name__, error)
                await asyncio.sleep(POLL_S)


_feeds: dict[tuple[asyncio.AbstractEventLoop, int], Feed] = {}


@contextlib.asynccontextmanager
async def join(pk: int) -> AsyncIterator[Feed]:
    """The feed of a run, shared with everybody else in this process who watches it."""
    key = (asyncio.get_running_loop(), pk)
    feed = _feeds.get(key)
    if feed is None:
        feed = _feeds[key] = Feed(pk)
        feed.start()
    feed.sockets += 1
    try:
        yield feed
    finally:
        feed.sockets -= 1
        if not feed.sockets:
            del _feeds[key]
            await feed.stop()


async def _read(pk: int, seq: int, limit: int) -> Reading:
    reading: Reading = await database_sync_to_async(read_rows, thread_sensitive=False)(
        pk, seq, limit
    )
    return reading


def read_rows(pk: int, seq: int, limit: int) -> Reading:
    """At most `limit` events after `seq`, rendered, and where the run stands.

    The events come first: where the run stands is then never older than they are, so the frame that
    holds a run's last event also says that it is over.
    """
    rows = list(Event.objects.filter(run=pk, seq__gt=seq).order_by("seq")[:limit])
    columns = Run.objects.values_list("last_seq", "status", "reason").get(pk=pk)
    pages = _render(rows)
    items = tuple(_item(row, page) for row, page in zip(rows, pages, strict=True))
    return Reading(Standing(*columns), items)


def _item(row: Event, page: str) -> Item:
    at = json.loads(row.body)["at"]
    text = json.dumps({"seq": row.seq, "type": row.type, "at": at, "html": page})
    return Item(row.seq, row.type, text)


def _render(rows: list[Event]) -> list[str]:
    """One event that cannot be shown must not hide those after it."""
    try:
        return render_events(rows)
    except Exception:
        logger.exception("rendering one by one")
    return [_render_or_say(row) for row in rows]


def _render_or_say(row: Event) -> str:
    try:
        return render_event(row)
    except Exception as error:
        words = html.escape(f"event {row.seq} ({row.type}) cannot be shown: {error}")
        return f'<article id="seq-{row.seq}">{words}</article>'
