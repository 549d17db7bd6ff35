"""Lines of a candidate's source, as an answer quotes them, and how two sources differ."""

from __future__ import annotations

import difflib
import re

from runner.answers.text import lines_of, plain

QUOTED_CHARACTERS = 160
COMPARED_LINES = 5_000
_PLACES = re.compile(r"^(?:candidate|c\d+)\.(?:cpp|py|cu):(\d+)", re.MULTILINE)


def excerpt(source: str, line: int) -> str:
    """The line and one around it on each side, numbered; empty if there is no such line."""
    lines = lines_of(source)
    if not 1 <= line <= len(lines):
        return ""
    quoted = []
    for number in range(max(1, line - 1), min(len(lines), line + 1) + 1):
        mark = ">" if number == line else " "
        quoted.append(f"{mark} {number:4} | {plain(lines[number - 1])[:QUOTED_CHARACTERS]}")
    return "\n".join(quoted)


def blamed_lines(output: str) -> tuple[int, ...]:
    """The lines that a compiler's output places its errors at, each once, in order."""
    places = (
        int(found[1])
        for found in _PLACES.finditer(output)
        if "warning:" not in output[found.end() : output.find("\n", found.end())]
    )
    return tuple(dict.fromkeys(places))


def difference(before: str, after: str, names: tuple[str, str]) -> str:
    """A unified diff with two lines around each change; says so where there is none or no room."""
    a, b = lines_of(before), lines_of(after)
    if max(len(a), len(b)) > COMPARED_LINES:
        return f"not compared by line: a source has more than {COMPARED_LINES:,} lines"
    lines = difflib.unified_diff(a, b, *names, n=2, lineterm="")
    return "\n".join(map(plain, lines)) or "the sources are equal"
