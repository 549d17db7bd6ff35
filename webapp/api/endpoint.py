"""The address at which an outside agent finds its run: `/mcp/runs/<pk>/`.

Owns who is let in, and the wire. A request that brings no valid token of that run is turned away
before anything else of it is read, and learns nothing: not even whether there is such a run.
"""

from __future__ import annotations

import asyncio
import importlib
import json
from typing import TYPE_CHECKING, Any

from channels.db import database_sync_to_async
from django.conf import settings
from django.http.request import split_domain_port, validate_host

from webapp.api.models import Token
from webapp.runs.models import Run

if TYPE_CHECKING:
    from mcp.server.transport_security import TransportSecuritySettings

ROUTE = r"^mcp/runs/(?P<pk>[0-9]{1,9})/?$"
MOST_BYTES = 2 * 1024**2  # of one request: a source file, and its call around it
_UNAUTHORISED = {"error": "This needs the token of the run. Make one on the run's page."}
_ONLY_POST = {"error": "Calls are made with POST."}


def path(pk: int) -> str:
    """Where the run of that number is served."""
    return f"/mcp/runs/{pk}/"


async def endpoint(scope: Any, receive: Any, send: Any) -> None:
    """An ASGI application for one request to one run."""
    pk = int(scope["url_route"]["kwargs"]["pk"])
    run = await database_sync_to_async(_admitted)(pk, _bearer(scope))
    if run is None:
        await _refuse(send, 401, (b"www-authenticate", b"Bearer"), _UNAUTHORISED)
    elif scope["method"] != "POST":
        await _refuse(send, 405, (b"allow", b"POST"), _ONLY_POST)
    else:
        await _serve(run, scope, receive, send)


async def _serve(run: Run, scope: Any, receive: Any, send: Any) -> None:
    """A server for this request alone: whatever lasts from one to the next is in the database."""
    await asyncio.to_thread(importlib.import_module, "runner.mcp_server")  # a second, once
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from runner import mcp_server
    from webapp.api.desk import RunDesk

    manager = StreamableHTTPSessionManager(
        mcp_server.serve(RunDesk(run)),
        stateless=True,
        security_settings=_security(scope),
        max_request_body_size=MOST_BYTES,
    )
    async with manager.run():
        await manager.handle_request(scope, receive, send)


def _admitted(pk: int, token: str) -> Run | None:
    return Run.objects.get(pk=pk) if token and Token.objects.admits(pk, token) else None


def _bearer(scope: Any) -> str:
    kind, _, token = _header(scope, b"authorization").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


def _security(scope: Any) -> TransportSecuritySettings:
    """The hosts of the site, by Django's own rules; a browser may only come from the same one."""
    from mcp.server.transport_security import TransportSecuritySettings

    host = _header(scope, b"host")
    ours = validate_host(split_domain_port(host)[0], settings.ALLOWED_HOSTS)
    return TransportSecuritySettings(
        allowed_hosts=[host] if ours else [],
        allowed_origins=[f"http://{host}", f"https://{host}"] if ours else [],
    )


def _header(scope: Any, name: bytes) -> str:
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else ""


async def _refuse(send: Any, status: int, header: tuple[bytes, bytes], body: Any) -> None:
    content = json.dumps(body).encode()
    headers = [header, (b"content-type", b"application/json")]
    headers.append((b"content-length", str(len(content)).encode()))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
