"""Lease: the exclusive hold on a run or a job, and the thread that keeps it.

A hold is a token in the row. Whoever holds an older token cannot write; a holder that stops
renewing loses the row to whoever takes it next. What is done under a lease is not decided here.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from django.db import DatabaseError, connection
from django.db.models import QuerySet
from django.utils import timezone

from webapp.runs.models import LEASE

logger = logging.getLogger(__name__)

TICK_S = 0.25


class Lease:
    """The row `pk` of `rows` held under `token`."""

    def __init__(self, rows: QuerySet[Any], pk: int, token: int) -> None:
        self.token = token
        self._held = rows.filter(pk=pk, lease_token=token)

    def update(self, **values: Any) -> bool:
        """Change the row if it is still ours."""
        return self._held.update(**values) == 1

    def renew(self) -> bool:
        return self.update(lease_until=timezone.now() + LEASE)


class Keeper:
    """Renews a lease from a thread for as long as the `with` block lasts.

    `lost` is set when the row is no longer ours, or could not be reached for a whole lease; once
    set, by whomever, nothing is renewed. `tick` is called in that thread a few times a second.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        lost: threading.Event | None = None,
        tick: Callable[[], None] | None = None,
    ) -> None:
        self.lost = lost or threading.Event()
        self._lease = lease
        self._tick = tick
        self._done = threading.Event()
        self._renewed = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._done.wait(TICK_S) and not self.lost.is_set():
                try:
                    self._renew_when_due()
                    if self._tick:
                        self._tick()
                except DatabaseError as error:
                    logger.warning("lease not renewed: %s", error)
                    if self._unrenewed_s() > LEASE.total_seconds():
                        self.lost.set()
        finally:
            connection.close()

    def _renew_when_due(self) -> None:
        if self._unrenewed_s() < LEASE.total_seconds() / 4:
            return
        if self._lease.renew():
            self._renewed = time.monotonic()
        else:
            self.lost.set()

    def _unrenewed_s(self) -> float:
        return time.monotonic() - self._renewed
