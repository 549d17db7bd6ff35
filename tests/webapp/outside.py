"""A site, a driver and a real client of the protocol, as an outside agent and its run have them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx2
import uvicorn
from django.db import connection
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult

from runner.spec import Budgets, RunSpec
from tests.factories import make_user
from tests.ports import free_port
from webapp.api.models import Token
from webapp.asgi import application
from webapp.runs import driver
from webapp.runs.models import Event, Run

PATIENCE_S = 60.0
SOURCE = """
#include <cstdint>
extern "C" void vector_add_fp32(const float *x, const float *y, float *out, std::int64_t N) {
    for (std::int64_t i = 0; i < N; ++i) out[i] = x[i] + y[i];
}
"""
Result = TypeVar("Result")


class Site:
    """The whole ASGI application behind a real server, in a thread."""

    def __init__(self) -> None:
        self.port = free_port()
        config = uvicorn.Config(
            application, host="127.0.0.1", port=self.port, lifespan="off", log_level="warning"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, run: Run) -> str:
        return f"{self.url}/mcp/runs/{run.pk}/"

    def __enter__(self) -> Self:
        self._thread.start()
        until(lambda: self._server.started)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._server.force_exit = True
        self._thread.join()

    @contextlib.asynccontextmanager
    async def client(self, run: Run, token: str, **options: Any) -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http:
            wire = streamable_http_client(self.address(run), http_client=http)
            async with Client(wire, **options) as client:
                yield client

    def talk(
        self, run: Run, token: str, words: Callable[[Client], Awaitable[Result]], **options: Any
    ) -> Result:
        """Connect, do something, and hang up."""

        async def conversation() -> Result:
            async with self.client(run, token, **options) as client:
                return await words(client)

        return asyncio.run(conversation())


class DriverThread:
    """Drives one run in a thread, as an agents worker would; leaving it shuts that worker down."""

    def __init__(self, run: Run) -> None:
        self.run_pk = run.pk
        self.shutdown = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.shutdown.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            driver.drive_run(self.run_pk, self.shutdown, "agents@here")
        finally:
            connection.close()


def launch(**spec: Any) -> Run:
    """A queued run of an outside agent."""
    asked: dict[str, Any] = {"case_set": "host-quick", "budgets": Budgets(evaluations=4), **spec}
    return Run.objects.launch(RunSpec("vector_add", agent="external", **asked), make_user())


def token_of(run: Run) -> str:
    return Token.objects.issue(run, make_user())


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)


def types_of(run: Run) -> list[str]:
    return list(Event.objects.filter(run=run).order_by("seq").values_list("type", flat=True))


def text_of(answer: CallToolResult) -> str:
    return str(answer.content[0].text)  # type: ignore[union-attr]
