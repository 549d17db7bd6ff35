"""The tool calls of a run's outside agent: how they come in, and how its driver reads them.

Owns their numbers, that a call which a lost connection repeats is the same call, and how many may
wait. What the log says to a call is runner.agents.external's to read.
"""

from __future__ import annotations

import hashlib
from typing import Any

from django.db import transaction

from runner.agents.external import Reply, last_number, over, refused, turn_of
from runner.agents.external import ToolRequest as Request
from runner.events import EventType, RunStatus
from runner.wire import canonical
from webapp.api.models import ToolRequest
from webapp.runs import store
from webapp.runs.models import Event, Run

MOST_WAITING = 16
TOOL_CHARACTERS = 100


class RunInbox:
    """Implements runner.agents.external.Inbox on rows."""

    def __init__(self, run_pk: int) -> None:
        self.run_pk = run_pk

    def next(self, after: int) -> Request | None:
        row = ToolRequest.objects.filter(run=self.run_pk, number__gt=after).first()
        return row.request if row else None


def put(run_pk: int, tool: str, arguments: dict[str, Any]) -> ToolRequest | Reply:
    """Take a call in, or the reply that says why it cannot be had now.

    A call whose answer was never delivered is found again by whoever repeats it: it was lost on
    the way, unless another answer has arrived since.
    """
    if len(tool) > TOOL_CHARACTERS:
        return refused("tool", "no tool has so long a name.", "Use one of the listed tools.")
    try:
        text = canonical(arguments)
    except ValueError as error:
        return refused("arguments", f"{error}.", "Give plain JSON.")
    digest = hashlib.sha256(canonical([tool, text]).encode()).hexdigest()
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_pk)
        refusal = _refusal(run)
        if refusal is not None:
            return refusal
        lost = _lost(run, digest)
        if lost is not None:
            return lost
        if _waiting(run) >= MOST_WAITING:
            problem = f"{MOST_WAITING} calls wait already."
            return refused("run", problem, "Wait for their answers before you call again.")
        return ToolRequest.objects.create(
            run=run,
            number=_last_number(run) + 1,
            tool=tool,
            arguments_text=text,
            digest=digest,
            heard_seq=_last_result(run),
        )


def _refusal(run: Run) -> Reply | None:
    """Why a run takes no calls now."""
    if run.state.ended:
        return over(run.state, run.reason)
    if run.state is RunStatus.paused:
        remedy = "Call again once a person has resumed it."
        return refused("run", f"is paused: {run.reason}.", remedy)
    if run.state is RunStatus.queued:
        why = f" ({run.reason})" if run.reason else ""
        return refused("run", f"is not driven just now{why}.", "Call again in half a minute.")
    return None


def _lost(run: Run, digest: str) -> ToolRequest | None:
    same = run.tool_requests.filter(digest=digest, delivered=False).last()
    if same is None:
        return None
    heard_since = run.tool_requests.filter(number__gt=same.number, delivered=True).exists()
    return None if heard_since else same


def _last_number(run: Run) -> int:
    last = run.tool_requests.last()
    return last.number if last else 0


def _last_result(run: Run) -> int:
    """The seq of the last tool result; 0 before there is one."""
    results = Event.objects.filter(run=run, type=EventType.tool_result)
    return results.order_by("-seq").values_list("seq", flat=True).first() or 0


def _waiting(run: Run) -> int:
    """How many calls the driver has not taken up yet."""
    undelivered = run.tool_requests.filter(delivered=False).count()
    if undelivered < MOST_WAITING:
        return undelivered  # at most; what was taken need not be looked up
    return _last_number(run) - _last_taken(run)


def _last_taken(run: Run) -> int:
    messages = Event.objects.filter(run=run, type=EventType.message).order_by("-seq")
    for row in messages.iterator(20):
        turn = turn_of(row.log, store.read)
        if turn is not None:
            return last_number(turn)
    return 0
