"""Prose: the little of Markdown that makes an agent's words readable, as blocks and spans.

Code between fences, headings, code and bold words in a line; all else stays as it was written. It
makes no HTML: a template writes, and escapes, what is found here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FENCE = "```"
_HEADING = re.compile(r"#{1,6} +(?=\S)")
_MARKED = re.compile(r"`([^`\n]+)`|\*\*(?! )([^*\n]+)(?<! )\*\*")


@dataclass(frozen=True)
class Span:
    """A part of a line or of several; at most one of `code` and `bold`."""

    text: str
    code: bool = False
    bold: bool = False


@dataclass(frozen=True)
class Block:
    """Lines of words as spans, or a block of `code`."""

    spans: tuple[Span, ...] = ()
    code: str = ""


def blocks(text: str) -> list[Block]:
    """The text in order; a fence that is not closed holds all that follows."""
    found: list[Block] = []
    lines: list[str] = []
    inside = False
    for line in [*text.split("\n"), None]:
        fence = line is not None and line.lstrip().startswith(FENCE)
        if line is not None and not fence:
            lines.append(line)
            continue
        part = "\n".join(lines).strip("\n")
        if part:
            found.append(Block(code=part) if inside else Block(spans=_spans(part)))
        lines, inside = [], not inside
    return found


def outside_code(text: str, cut: int) -> int:
    """`cut`, or the beginning of the fenced block that it would tear apart."""
    fences = [m.start() for m in re.finditer(rf"^[ \t]*{FENCE}", text[:cut], re.MULTILINE)]
    return fences[-1] if len(fences) % 2 and fences[-1] > 0 else cut


def _spans(text: str) -> tuple[Span, ...]:
    spans: list[Span] = []
    for number, line in enumerate(text.split("\n")):
        end = "\n" if number else ""
        if heading := _HEADING.match(line):
            spans += [Span(end), Span(line[heading.end() :], bold=True)]
        else:
            spans += _marked(end + line)
    return tuple(span for span in spans if span.text)


def _marked(line: str) -> list[Span]:
    spans, at = [], 0
    for match in _MARKED.finditer(line):
        code, bold = match.groups()
        spans += [Span(line[at : match.start()]), Span(code or bold, bool(code), bool(bold))]
        at = match.end()
    return [*spans, Span(line[at:])]
