"""One request to a model, asked until it is answered.

Owns the stream, its silence, its breaks, and the waits between attempts: each of them is shown to
people as a notice, with what the attempt cost. The SDK asks once and hides nothing.

The stream is read by an event loop that runs between looks at the run's requests, never during
them: so a stop cuts a reply within a tick, and whatever looks may use a database.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2

from runner.agents import AgentFailed, ContextFull
from runner.conversation import REFUSED
from runner.events import Usage
from runner.loop import HEED_S, Interrupted, Loop
from runner.messages import KEY
from runner.messages.draft import Draft
from runner.messages.faults import BrokenStream, Fault, Garbled, Remedy, judge, scrub

TICK_S = 0.1  # how often a stream is looked at, and so how often people see it grow
CONNECT_S = 10.0
LEAST_WAIT_S = 1.0
FULL = "model_context_window_exceeded"


@dataclass(frozen=True)
class Patience:
    """How long and how often a model is waited for.

    `silence_s` is how long a stream may send nothing at all, pings included. Waits between attempts
    double from `first_wait_s` to `longest_wait_s`, unless the API says how long.
    """

    attempts: int = 8
    silence_s: float = 60.0
    first_wait_s: float = 2.0
    longest_wait_s: float = 60.0
    sleep: Callable[[float], None] = time.sleep

    def wait_s(self, attempt: int, asked_s: float | None) -> float:
        """Before the attempt after this one; a quarter of it is chance, so that nobody queues."""
        if asked_s is not None:
            return max(asked_s, LEAST_WAIT_S)
        wait = min(self.longest_wait_s, self.first_wait_s * 2 ** (attempt - 1))
        return wait * random.uniform(0.75, 1.25)


def ask(
    loop: Loop, request: dict[str, Any], patience: Patience, base_url: str | None = None
) -> Draft:
    """The whole reply to a request; raises TurnCut, Interrupted, ContextFull and AgentFailed."""
    if not os.environ.get(KEY):
        raise AgentFailed(f"{KEY} is not set where this agent runs")
    for attempt in range(1, patience.attempts + 1):
        draft = Draft(request["model"])
        try:
            _stream(loop, request, draft, patience, base_url)
        except Interrupted:
            _account(loop, draft)
            raise
        except Exception as error:
            fault = judge(error, patience.silence_s)
            if fault is None:
                raise
            _bear(loop, fault, attempt, patience, draft.usage)
            continue
        if draft.stop == FULL:
            loop.notice("The reply filled the model's context and was given up.", draft.usage)
            raise ContextFull(FULL)
        if draft.stop == REFUSED:
            policy = f" (its policy: {scrub(draft.refused_as)})" if draft.refused_as else ""
            loop.notice(f"The model's safeguards refused to answer{policy}.")
        return draft
    raise AssertionError("the last attempt ends in a reply or in an exception")


def _bear(loop: Loop, fault: Fault, attempt: int, patience: Patience, usage: Usage | None) -> None:
    """Wait for the next attempt, where another one is worth it; what failed is shown."""
    words = fault.words
    if fault.remedy is Remedy.afresh:
        loop.notice(f"{words}.", usage)
        raise ContextFull(words) from None
    if fault.remedy is Remedy.none:
        if usage is not None:
            loop.notice(f"{words}.", usage)
        raise AgentFailed(_lower(words)) from None
    if attempt == patience.attempts:
        loop.notice(f"{words}; attempt {attempt} of {patience.attempts} was the last.", usage)
        raise AgentFailed(f"{_lower(words)}, {attempt} times in a row") from None
    wait_s = patience.wait_s(attempt, fault.wait_s)
    again = f"attempt {attempt + 1} of {patience.attempts}"
    loop.notice(f"{words}; trying again in {wait_s:.0f} s, {again}.", usage)
    while wait_s > 0:
        loop.heed()
        patience.sleep(min(wait_s, HEED_S))
        wait_s -= HEED_S


def _stream(
    loop: Loop, request: dict[str, Any], draft: Draft, patience: Patience, base_url: str | None
) -> None:
    """Ask once; the draft holds what arrived, whatever happens."""
    shown = ""
    with asyncio.Runner() as runner:
        arrived: list[dict[str, Any]] = []
        reading = runner.get_loop().create_task(_read(request, arrived, patience, base_url))
        while not reading.done() and not draft.whole:  # a whole reply is paid for, and is kept
            runner.run(asyncio.wait({reading}, timeout=TICK_S))
            _add(draft, arrived)
            if draft.shown != shown:
                shown = draft.shown
                loop.hint(shown)
            if not reading.done() and not draft.whole:
                loop.heed(draft.usage)
        error = reading.exception() if reading.done() else None
        if not draft.whole:
            raise error or BrokenStream()


async def _read(
    request: dict[str, Any], arrived: list[dict[str, Any]], patience: Patience, base_url: str | None
) -> None:
    """Append each event of the stream to `arrived`. Silence is the socket's: pings break it."""
    client = anthropic.AsyncAnthropic(
        api_key=os.environ[KEY],
        base_url=base_url,
        max_retries=0,
        timeout=httpx2.Timeout(patience.silence_s, connect=CONNECT_S),
        open_telemetry=False,
    )
    async with client, await client.messages.create(**request, stream=True) as stream:
        async for event in stream:
            arrived.append(event.to_dict())


def _add(draft: Draft, arrived: list[dict[str, Any]]) -> None:
    """Move what has arrived into the draft."""
    try:
        for event in arrived:
            draft.add(event)
    except (KeyError, TypeError, AttributeError) as error:
        raise Garbled from error
    arrived.clear()


def _account(loop: Loop, draft: Draft) -> None:
    """What a reply cost that the end of this process cuts, while the log still takes it."""
    if draft.usage is None:
        return
    try:
        loop.notice("The turn was broken off: this process ends.", draft.usage)
    except Interrupted:
        return  # another driver has taken over: its log is not ours to write


def _lower(words: str) -> str:
    return words[:1].lower() + words[1:]
