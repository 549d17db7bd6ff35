"""Serves the one file of Plotly that the roofline needs, from the installed Python package.

Its address holds the version, so it may be cached for good. No copy lies in this repository.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import plotly
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse

VERSION: str = plotly.__version__
FILE = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"


def address() -> str:
    return reverse("plotly-js", args=[VERSION])


@cache
def _compressed() -> bytes:
    return gzip.compress(FILE.read_bytes(), compresslevel=6, mtime=0)


def serve(request: HttpRequest, version: str) -> HttpResponse:
    if version != VERSION:
        raise Http404(f"This installation has plotly {VERSION}.")
    zipped = "gzip" in request.headers.get("Accept-Encoding", "")
    content = _compressed() if zipped else FILE.read_bytes()
    response = HttpResponse(content, content_type="text/javascript; charset=utf-8")
    if zipped:
        response["Content-Encoding"] = "gzip"
    response["Cache-Control"] = "public, max-age=31536000, immutable"
    response["Vary"] = "Accept-Encoding"
    return response
