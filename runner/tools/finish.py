"""Ends a stage. What counts is what was measured; this only says that its author is done."""

from __future__ import annotations

from runner.loop import Answer, describe_best
from runner.spec import SpecError
from runner.tools import Work


def finish(work: Work, summary: str) -> Answer:
    """End your part of the run: call it when nothing that you could still try is worth its cost.

    The harness reports what it measured beside your summary: claim only what is measured.

    Arguments:
        summary: What you tried, what worked and why, and what is left to try; a few sentences.
    """
    if not summary.strip():
        raise SpecError("summary", "is empty.", "Say in a few sentences what you found.")
    return Answer(f"Your part is over. Measured: {describe_best(work.loop.state)}.")
