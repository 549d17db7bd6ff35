"""Reads one entry of the knowledge base."""

from __future__ import annotations

from runner.answers.text import plain
from runner.loop import Answer
from runner.spec import SpecError
from runner.tools import Work


def read_knowledge(work: Work, entry: str) -> Answer:
    """Read one knowledge entry whole: claim, mechanism, scope, what was not tested, its evidence.

    What it says was measured elsewhere or earlier: weigh it, and measure before you rely on it.

    Arguments:
        entry: The name that search_knowledge gives, such as 12.
    """
    text = work.loop.library.read(entry)
    if text is None:
        remedy = "Take a name that search_knowledge lists."
        raise SpecError("entry", f"no published entry is called {entry[:80]!r}.", remedy)
    return Answer(plain(text))
