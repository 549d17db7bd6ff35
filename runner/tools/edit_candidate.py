"""Writes a new candidate as a small change of an earlier one."""

from __future__ import annotations

from runner.answers import candidates
from runner.loop import Answer, Proposal
from runner.spec import SpecError
from runner.tools import Work
from runner.tools.write_candidate import submit


def edit_candidate(work: Work, parent: int, old: str, new: str, idea: str) -> Answer:
    """Write a candidate as a change of an earlier one: one passage is replaced by another.

    The parent stays as it is. The new candidate is numbered and analysed at once, not measured.

    Arguments:
        parent: The number of the candidate to change.
        old: The passage to replace, exactly as in the parent's source; it must occur once in it.
        new: What stands there instead; empty deletes the passage.
        idea: What is changed and why that should pay, in one sentence.
    """
    made_from = candidates.known(work.loop, parent, "parent")
    source = work.loop.source(parent)
    if old == new:
        raise SpecError("new", "is the same as old.", "Give what shall stand there instead.")
    _require_once(source, old, parent)
    changed = source.replace(old, new)
    return submit(work, Proposal(changed, made_from.language, parent, idea))


def _require_once(source: str, old: str, parent: int) -> None:
    if not old:
        raise SpecError("old", "is empty.", "Give a passage of the parent's source.")
    count = source.count(old)
    if count == 0:
        problem = f"does not occur in c{parent}."
        remedy = f"Copy it from read_candidate({parent}), with its spaces and line breaks."
        raise SpecError("old", problem, remedy)
    if count > 1:
        problem = f"occurs {count} times in c{parent}."
        raise SpecError("old", problem, "Take more lines around it, so that it occurs once.")
