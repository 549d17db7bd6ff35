"""How a person connects an outside agent to a run: the token, shown once, and what to paste."""

from __future__ import annotations

import json
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from runner.agents.external import PROMPT, SERVER
from webapp.api import endpoint
from webapp.api.models import Token
from webapp.runs.models import Run
from webapp.runs.views import SignedIn


@dataclass(frozen=True)
class Connection:
    """What a person pastes into a coding agent's configuration. It holds the token itself."""

    url: str
    token: str

    @property
    def command(self) -> str:
        header = f"Authorization: Bearer {self.token}"
        return f'claude mcp add --transport http {SERVER} {self.url} --header "{header}"'

    @property
    def configuration(self) -> str:
        headers = {"Authorization": f"Bearer {self.token}"}
        server = {"type": "http", "url": self.url, "headers": headers}
        return json.dumps({"mcpServers": {SERVER: server}}, indent=2)


@require_http_methods(["GET", "POST"])
@never_cache
def connect(request: SignedIn, pk: int) -> HttpResponse:
    """A part of the run's page, or a page of its own.

    POST makes a new token and shows it, or revokes the one there is.
    """
    run = get_object_or_404(Run, pk=pk)
    open_to_agents = run.spec.outside and not run.imported and not run.state.ended
    made = None
    if "revoke" in request.POST:
        Token.objects.filter(run=run).delete()
    elif request.method == "POST" and open_to_agents:
        made = Connection(address(request, run), Token.objects.issue(run, request.user))
    context = {
        "nav": "runs",
        "run": run,
        "open": open_to_agents,
        "token": Token.objects.select_related("made_by").filter(run=run).first(),
        "made": made,
        "prompt": PROMPT,
        "server": SERVER,
    }
    partial = bool(request.headers.get("HX-Request"))
    status = 200 if request.method == "GET" or open_to_agents else 409
    template = "api/_credentials.html" if partial else "api/connect.html"
    return render(request, template, context, status=status)


def address(request: HttpRequest, run: Run) -> str:
    """Where an outside agent finds the run, by the name under which the site was asked for."""
    return request.build_absolute_uri(endpoint.path(run.pk))
