"""Leaves a note for whoever works on the run later."""

from __future__ import annotations

from runner.loop import Answer
from runner.spec import SpecError
from runner.tools import Work

CHARACTERS = 4_000


def write_note(work: Work, text: str) -> Answer:
    """Leave a note for whoever works on this run later: yourself in a fresh context, or another.

    Worth a note: what was tried, what it did in numbers, and under which conditions it would hold.

    Arguments:
        text: The note; it must make sense without what you know now.
    """
    if not text.strip():
        raise SpecError("text", "is empty.", "Say what was tried and what it did.")
    if len(text) > CHARACTERS:
        raise SpecError("text", f"has {len(text):,} characters.", f"Keep it under {CHARACTERS:,}.")
    work.loop.note(work.author, text.strip(), work.call)
    return Answer(f"Noted; the run has {len(work.loop.state.notes)} now.")
