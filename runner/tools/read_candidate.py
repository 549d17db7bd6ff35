"""Reads a candidate's source, and what is known of it."""

from __future__ import annotations

from runner.answers import candidates
from runner.answers.text import page
from runner.loop import Answer
from runner.tools import Work


def read_candidate(work: Work, candidate: int, first_line: int = 1, last_line: int = 0) -> Answer:
    """Read the source of a candidate, with its idea and what measuring has shown of it.

    Arguments:
        candidate: Its number: 3 for c3.
        first_line: The first line of the source to show.
        last_line: The last line of the source to show; 0 is the end, as far as it fits.
    """
    candidates.known(work.loop, candidate)
    state = work.loop.state
    head = f"{candidates.heading(state, candidate)}\n{candidates.standing(state, candidate)}"
    return Answer(f"{head}\n\n{page(work.loop.source(candidate), first_line, last_line)}")
