"""Filters that turn lines of an untrusted source into HTML. All of its text is escaped here."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from webapp.review.source import FOLD_LINE_AT, Line, Span

register = template.Library()

# As g++ and nvcc write it, and as Python's tracebacks do, of the candidate's own file.
_LOCATION = re.compile(
    r'candidate\.\w{1,4}:(?P<cpp>\d{1,7})|candidate\.py", line (?P<python>\d{1,7})'
)
FOLDED_CHARS = 100_000  # of one line in the page; a longer rest is left to the download


@register.filter
def code(line: Line, side: str = "") -> SafeString:
    """The spans of a line; `side` (`del` or `add`) picks the colour of changed words.

    The rest of a very long line is folded, its length said.
    """
    if line.length <= FOLD_LINE_AT:
        return _spans(line.spans, side)
    head, rest = _split(line.spans, FOLD_LINE_AT)
    shown, withheld = _split(rest, FOLDED_CHARS)
    missing = sum(len(span.text) for span in withheld)
    return format_html(
        '{}<details class="long-line"><summary>… {} characters in this line</summary>'
        "{}{}</details>",
        _spans(head, side),
        f"{line.length:,}",
        _spans(shown, side),
        f"… {missing:,} more characters: see the download" if missing else "",
    )


@register.filter
def source_links(output: str) -> SafeString:
    """Compiler output or a traceback; what names a line of the candidate leads to that line."""
    parts = []
    end = 0
    for match in _LOCATION.finditer(output):
        number = match["cpp"] or match["python"]
        link = format_html('<a href="#L{}">{}</a>', number, match.group())
        parts.append(format_html("{}{}", output[end : match.start()], link))
        end = match.end()
    return format_html(
        "{}{}", format_html_join("", "{}", ((part,) for part in parts)), output[end:]
    )


def _spans(spans: Iterable[Span], side: str) -> SafeString:
    return format_html_join("", "{}", ((_span(span, side),) for span in spans))


def _span(span: Span, side: str) -> SafeString | str:
    if span.mark:
        return format_html('<span class="odd-char" title="{}">{}</span>', span.about, span.mark)
    classes = " ".join(filter(None, [span.css, f"w-{side}" if span.changed and side else ""]))
    return format_html('<span class="{}">{}</span>', classes, span.text) if classes else span.text


def _split(spans: Iterable[Span], length: int) -> tuple[list[Span], list[Span]]:
    """The spans of the first `length` characters, and those of the rest."""
    head: list[Span] = []
    rest: list[Span] = []
    room = length
    for span in spans:
        size = len(span.text)
        if size <= room:
            head.append(span)
        elif room and not span.mark:
            head.append(replace(span, text=span.text[:room]))
            rest.append(replace(span, text=span.text[room:]))
        else:
            rest.append(span)
        room = max(0, room - size)
    return head, rest
