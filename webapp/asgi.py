"""Where HTTP, outside agents and WebSockets part ways.

Sockets need a session and one of our own origins; agents need the token of their run.
"""

from __future__ import annotations

import os
from typing import Any

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
http_application = get_asgi_application()  # sets Django up; the imports below need that

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from channels.security.websocket import AllowedHostsOriginValidator  # noqa: E402
from django.urls import re_path  # noqa: E402

from webapp.api import endpoint  # noqa: E402
from webapp.runs.routing import websocket_urlpatterns  # noqa: E402

pages: Any = http_application  # an ASGI application where Django's types expect a view
agents: Any = endpoint.endpoint
application = ProtocolTypeRouter(
    {
        "http": URLRouter([re_path(endpoint.ROUTE, agents), re_path(r"", pages)]),
        "websocket": AllowedHostsOriginValidator(
            AuthMiddlewareStack(URLRouter(websocket_urlpatterns))
        ),
    }
)
