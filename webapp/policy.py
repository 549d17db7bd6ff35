"""The content security policy: scripts come from our own files, whatever a page is made to hold.

Everything a page shows of an agent is escaped; this is the second wall.
"""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

POLICY = "; ".join(
    (
        "default-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # charts and bars set widths and colours inline
        "img-src 'self' data: blob:",  # Plotly draws its export through a blob
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
Answer = Callable[[HttpRequest], HttpResponse]


def content_security_policy(answer: Answer) -> Answer:
    """Middleware that puts the policy on every answer."""

    def middleware(request: HttpRequest) -> HttpResponse:
        response = answer(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response

    return middleware
