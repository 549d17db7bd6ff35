"""Text fit for a context window: cut where it says so, and without control characters."""

from __future__ import annotations

from collections.abc import Sequence

from runner.spec import SpecError

SUMMARY_CHARACTERS = 3_000
PAGE_CHARACTERS = 14_000
LINE_CHARACTERS = 1_000


def plain(text: str) -> str:
    """Without what a terminal or a reader would take for a command; lines and tabs stay."""
    return "".join(each for each in text if each.isprintable() or each in "\n\t")


def lines_of(text: str) -> list[str]:
    """Lines as compilers count them: only a line feed ends one."""
    return text.removesuffix("\n").split("\n")


def one_line(text: str, limit: int = 300) -> str:
    """All of it on one line, cut at `limit` characters."""
    return cut(" ".join(plain(text).split()), limit)


def cut(text: str, limit: int) -> str:
    """The beginning of a text, with a word on what is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… ({len(text) - limit:,} characters more)"


def tail(text: str, limit: int) -> str:
    """The end of a text, from the beginning of a line where there is one."""
    if len(text) <= limit:
        return text
    kept = text[-limit:]
    _, newline, rest = kept.partition("\n")
    return f"… ({len(text) - limit:,} characters before)\n{rest if newline and rest else kept}"


def fitted(parts: Sequence[str], limit: int = SUMMARY_CHARACTERS) -> str:
    """As many of the parts as fit, in order, with a word on how many are left out."""
    kept: list[str] = []
    for position, part in enumerate(parts):
        if kept and sum(len(each) + 1 for each in kept) + len(part) > limit:
            kept.append(f"… {len(parts) - position} more in the details")
            break
        kept.append(part)
    return "\n".join(kept)


def page(text: str, first_line: int, last_line: int) -> str:
    """The lines of a text from `first_line` to `last_line`, 0 meaning the end, as far as they fit.

    Raises SpecError for a range that holds no line.
    """
    lines = lines_of(text)
    total, last = len(lines), last_line or len(lines)
    if not 1 <= first_line <= total:
        problem = f"{first_line} is outside 1–{total}."
        raise SpecError("first_line", problem, "Give a line that is there; they count from 1.")
    if last < first_line:
        problem = f"{last_line} is before first_line, {first_line}."
        raise SpecError("last_line", problem, "Leave it out to read to the end.")
    kept: list[str] = []
    room = PAGE_CHARACTERS
    for line in lines[first_line - 1 : last]:
        room -= min(len(line), LINE_CHARACTERS) + 1
        if kept and room < 0:
            break
        kept.append(cut(line, LINE_CHARACTERS))
    shown = first_line + len(kept) - 1
    if (first_line, shown) == (1, total):
        return "\n".join(kept)
    more = f"; read on with first_line={shown + 1}" if shown < total else ""
    return "\n".join([*kept, f"[lines {first_line}–{shown} of {total}{more}]"])
