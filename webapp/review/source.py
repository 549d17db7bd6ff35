"""Splits an untrusted source into lines of coloured spans that show every character it holds.

Spans of all lines, joined, give the source back exactly: nothing is dropped or rewritten. A
character that a reader could not see (controls, bidirectional marks, odd spaces) becomes a span of
its own with a visible `mark`. This module produces no HTML and compares nothing; see `diff`.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Comment, Keyword, Literal, Name, Number, Operator, String, _TokenType

# A lexer is a stack of regular expressions, and some backtrack quadratically on text that nobody
# writes by hand. Sources past these bounds are shown without colour, and `note` says so.
MAX_COLOURED_CHARS = 200_000
MAX_COLOURED_LINE = 2_000
COLOUR_DEADLINE_S = 0.4
_LONG_BLANK = re.compile(r"\s{200}")

# The names of the control characters from 0 on: their pictures are missing from many fonts.
_CONTROL_NAMES = """NUL SOH STX ETX EOT ENQ ACK BEL BS HT LF VT FF CR SO SI
DLE DC1 DC2 DC3 DC4 NAK SYN ETB CAN EM SUB ESC FS GS RS US"""
_CONTROLS = tuple(_CONTROL_NAMES.split())
FOLD_LINE_AT = 1_000  # characters of one line shown before the rest is folded
LEXERS = {"cpp": "cpp", "cuda": "cuda", "triton": "python", "python": "python"}
_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment.Preproc, "tk-p"),
    (Comment.PreprocFile, "tk-s"),
    (Comment, "tk-c"),
    (Keyword.Type, "tk-t"),
    (Keyword, "tk-k"),
    (String, "tk-s"),
    (Number, "tk-n"),
    (Literal, "tk-n"),
    (Name.Function, "tk-f"),
    (Name.Class, "tk-f"),
    (Name.Decorator, "tk-p"),
    (Name.Builtin, "tk-t"),
    (Operator.Word, "tk-k"),
)


@dataclass(frozen=True)
class Span:
    """A piece of a line: its text as it is, a colour class, whether a diff changed it.

    `mark` is what to show in place of a character that has no shape, and `about` its full name.
    """

    text: str
    css: str = ""
    changed: bool = False
    mark: str = ""
    about: str = ""


@dataclass(frozen=True)
class Line:
    """Line `number` (from 1) without its newline; only a last line may lack one."""

    number: int
    spans: tuple[Span, ...]
    newline: bool = True

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)

    @property
    def length(self) -> int:
        return sum(len(span.text) for span in self.spans)


@dataclass(frozen=True)
class Source:
    """A whole source, ready to show. `note` says why it is shown without colours, if it is."""

    lines: tuple[Line, ...]
    note: str = ""


def text_of(content: bytes) -> str:
    """Any bytes as text. A byte that is not UTF-8 becomes a lone surrogate, shown as `0xFF`."""
    return content.decode("utf-8", errors="surrogateescape")


def split_lines(text: str) -> list[str]:
    """Lines with their newlines. Only `\\n` ends a line, as in compilers' line numbers."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)


@lru_cache(maxsize=64)
def read_source(text: str, language: str = "", within_s: float = COLOUR_DEADLINE_S) -> Source:
    """The lines of a source in the colours of its language, as far as `within_s` allows."""
    note = _why_plain(text, language)
    spans_of_text = [Span(text)]
    if language in LEXERS and not note:
        spans_of_text, note = _coloured(text, language, within_s)
    lines = []
    for number, spans in enumerate(_by_line(spans_of_text), start=1):
        newline = spans[-1].text.endswith("\n")
        if newline:
            last = spans.pop()
            spans += [Span(last.text[:-1], last.css)] if len(last.text) > 1 else []
        lines.append(Line(number, tuple(_visible(spans)), newline))
    return Source(tuple(lines), note)


def plain_line(number: int, text: str) -> Line:
    """One line without colours, every character of it shown."""
    return Line(number, tuple(_visible([Span(text)])) if text else ())


def _why_plain(text: str, language: str) -> str:
    if language not in LEXERS:
        return ""
    if len(text) > MAX_COLOURED_CHARS:
        return f"No syntax colours: the source has more than {MAX_COLOURED_CHARS:,} characters."
    if any(len(line) > MAX_COLOURED_LINE for line in text.split("\n")):
        return f"No syntax colours: a line has more than {MAX_COLOURED_LINE:,} characters."
    if _LONG_BLANK.search(text):
        return "No syntax colours: the source has a run of 200 or more blanks."
    return ""


@cache
def _lexer(language: str) -> Lexer:
    return get_lexer_by_name(LEXERS[language])


def _coloured(text: str, language: str, within_s: float) -> tuple[list[Span], str]:
    """Token by token until the deadline; what is left after it is one plain span, and a note.

    The clock is this thread's own: on a busy machine an honest source must not turn grey.
    """
    deadline = time.thread_time() + within_s
    spans, end = [], 0
    for start, kind, value in _lexer(language).get_tokens_unprocessed(text):
        if start != end or not value or time.thread_time() > deadline:
            break
        spans.append(Span(value, css_class(kind)))
        end = start + len(value)
    if end == len(text):
        return spans, ""
    line = text.count("\n", 0, end) + 1
    return [*spans, Span(text[end:])], f"No syntax colours from line {line} on: it took too long."


@cache
def css_class(kind: _TokenType) -> str:
    return next((css for token, css in _CLASSES if kind in token), "")


def _by_line(spans: Iterable[Span]) -> Iterator[list[Span]]:
    line: list[Span] = []
    for span in spans:
        for piece in split_lines(span.text):
            if line and line[-1].css == span.css and not piece.isspace():
                piece = line.pop().text + piece
            line.append(Span(piece, span.css))
            if piece.endswith("\n"):
                yield line
                line = []
    if line:
        yield line


def _visible(spans: Iterable[Span]) -> Iterator[Span]:
    """Cut out the characters without a shape and give them a mark."""
    for span in spans:
        if span.text.replace("\t", "").isprintable():
            yield span
            continue
        for odd, run in groupby(span.text, key=_has_no_shape):
            text = "".join(run)
            if not odd:
                yield Span(text, span.css)
                continue
            more = f" and {len(text) - 1:,} more" if len(text) > 1 else ""
            yield Span(
                text, span.css, mark=" ".join(map(mark_of, text)), about=_about(text[0]) + more
            )


def _has_no_shape(character: str) -> bool:
    return not character.isprintable() and character != "\t"


def mark_of(character: str) -> str:
    """How a character without a shape is shown.

    >>> mark_of("\\x1b"), mark_of("\\u202e"), mark_of("\\udcff")
    ('ESC', 'U+202E', '0xFF')
    """
    code = ord(character)
    if code < len(_CONTROLS):
        return _CONTROLS[code]
    if code == 0x7F:
        return "DEL"
    if 0xDC80 <= code <= 0xDCFF:
        return f"0x{code - 0xDC00:02X}"
    return f"U+{code:04X}"


def _about(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"byte 0x{code - 0xDC00:02X}, not valid UTF-8"
    name = unicodedata.name(character, "") or ("control character" if code < 0xA0 else "")
    return f"U+{code:04X} {name}".strip()
