"""The socket of a live run page: first what is after the reader's last seq, then what comes.

One sending loop a socket: however many nudges arrive while a frame is on its way, they become one
next frame. Nothing that a client sends is acted upon.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer

from webapp.runs import feed
from webapp.runs.feed import Feed, Item, Standing
from webapp.runs.models import Run

HEARTBEAT_S = 2.0
MAX_SEQ = 2**31 - 1  # what the column holds
UNAUTHENTICATED, NO_SUCH_RUN = 4401, 4404


class RunConsumer(AsyncWebsocketConsumer):
    channel_layer_alias = ""  # the feed subscribes, once for all sockets; a socket has no channel

    async def connect(self) -> None:
        self.pk = int(self.scope["url_route"]["kwargs"]["pk"])
        user = self.scope.get("user")
        if user is None or not user.is_authenticated:
            await self.close(UNAUTHENTICATED)
            return
        if not await database_sync_to_async(Run.objects.filter(pk=self.pk).exists)():
            await self.close(NO_SUCH_RUN)
            return
        await self.accept()
        self._sending = asyncio.create_task(self._send_news(_after(self.scope)))

    async def disconnect(self, code: int) -> None:
        sending: asyncio.Task[None] | None = getattr(self, "_sending", None)
        if sending:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sending

    async def _send_news(self, sent: int) -> None:
        told: Standing | None = None
        beaten, shown = 0.0, ""
        async with feed.join(self.pk) as run_feed:
            while True:
                news = run_feed.news
                if run_feed.standing is None:
                    await _wait(run_feed, news, HEARTBEAT_S)
                    continue
                items = await run_feed.after(sent)
                if items:
                    sent, told, shown = items[-1].seq, run_feed.standing, ""
                    await self.send(text_data=_frame(items, told, sent))
                    continue
                if run_feed.text != shown:
                    shown = run_feed.text
                    await self.send(text_data=_text(shown, sent))
                    continue
                due = beaten + HEARTBEAT_S - time.monotonic()
                if due <= 0 or run_feed.standing != told:
                    told, beaten, due = run_feed.standing, time.monotonic(), HEARTBEAT_S
                    await self.send(text_data=_heartbeat(told))
                await _wait(run_feed, news, due)


async def _wait(run_feed: Feed, news: asyncio.Event, seconds: float) -> None:
    if run_feed.news is news:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(news.wait(), max(seconds, 0.01))


@functools.lru_cache(maxsize=16)  # readers who are up to date all get the same frame
def _frame(items: tuple[Item, ...], standing: Standing, sent: int) -> str:
    """`last_seq` is the run's, so that a reader knows how much is still to come."""
    head = {
        "type": "events",
        "last_seq": max(sent, standing.last_seq),
        "status": standing.status,
    }
    return f'{json.dumps(head)[:-1]}, "items": [{",".join(item.text for item in items)}]}}'


@functools.lru_cache(maxsize=16)
def _text(text: str, sent: int) -> str:
    """What the agent has said so far in its turn; readers drop it when the next event comes."""
    return json.dumps({"type": "text", "after": sent, "text": text})


def _heartbeat(standing: Standing) -> str:
    return json.dumps(
        {
            "type": "heartbeat",
            "last_seq": standing.last_seq,
            "status": standing.status,
            "reason": standing.reason,
            "now": datetime.now(UTC).isoformat(timespec="microseconds"),
        }
    )


def _after(scope: dict[str, Any]) -> int:
    """The reader's last seq from `?after=N`; anything else counts as the beginning."""
    values = parse_qs(scope.get("query_string", b"").decode()).get("after", [""])
    return min(int(values[0]), MAX_SEQ) if values[0].isdecimal() else 0
