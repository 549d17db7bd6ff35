"""Reads what the answer of an earlier tool call left out."""

from __future__ import annotations

from runner.answers.text import page
from runner.loop import Answer
from runner.spec import SpecError
from runner.tools import Work

LISTED = 8


def read_details(work: Work, call: str, first_line: int = 1, last_line: int = 0) -> Answer:
    """Read the details of an earlier tool call: all findings, the whole output, the whole diff.

    Arguments:
        call: The name of the call, as its answer gives it, such as e12.1.
        first_line: The first line to show.
        last_line: The last line to show; 0 is the end, as far as it fits.
    """
    details = work.loop.state.details
    if call not in details:
        latest = ", ".join(list(details)[-LISTED:])
        remedy = f"Calls that have some: {latest}." if latest else "No call has any yet."
        raise SpecError("call", f"{call[:40]!r} has no details.", remedy)
    text = work.loop.read(details[call]).decode("utf-8", "replace")
    return Answer(page(text, first_line, last_line))
