"""A candidate as answers name it: who it is, what is known of it, and which ones there are."""

from __future__ import annotations

from runner.answers.text import one_line
from runner.events import CandidatePayload
from runner.loop import Loop, describe_speedup
from runner.results import Verdict
from runner.spec import SpecError
from runner.state import RunState

LISTED = 8  # failures and candidates without a benchmark that a list names


def known(loop: Loop, number: int, field: str = "candidate") -> CandidatePayload:
    """The candidate of that number; raises SpecError naming those that there are."""
    candidates = loop.state.candidates
    if number in candidates:
        return candidates[number]
    if not candidates:
        raise SpecError(field, f"there is no c{number} yet.", "Write one with write_candidate.")
    last = len(candidates)
    remedy = "Use 1: it is the only one." if last == 1 else f"Use a number from 1 to {last}."
    raise SpecError(field, f"there is no c{number}.", remedy)


def heading(state: RunState, number: int) -> str:
    """`c3 from c1: the idea`."""
    candidate = state.candidates[number]
    parent = f" from c{candidate.parent}" if candidate.parent else ""
    return f"c{number}{parent}: {one_line(candidate.idea)}"


def standing(state: RunState, number: int) -> str:
    """What measuring has shown of a candidate, in half a sentence."""
    whole = state.evaluations.get(number)
    if whole is not None:
        if whole.speedup is not None:
            return describe_speedup(whole)
        reason = f": {one_line(whole.reason, 160)}" if whole.reason else ""
        return f"{whole.verdict.value}{reason}"
    trials = [
        f"{scope} {found.verdict.value}"
        for (candidate, scope), found in state.trials.items()
        if candidate == number
    ]
    return f"not benchmarked; {', '.join(trials)}" if trials else "not benchmarked"


def failed(state: RunState) -> tuple[int, ...]:
    """The candidates whose whole evaluation did not pass, oldest first."""
    return tuple(
        number for number, found in state.evaluations.items() if found.verdict is not Verdict.passed
    )


def unmeasured(state: RunState) -> tuple[int, ...]:
    """The candidates that have no whole evaluation, oldest first."""
    return tuple(number for number in state.candidates if number not in state.evaluations)
