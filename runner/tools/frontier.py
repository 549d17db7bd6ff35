"""Lists the candidates worth going on from, and what became of the others."""

from __future__ import annotations

from runner import prompts, units
from runner.answers import candidates
from runner.answers.text import fitted
from runner.loop import Answer, Loop
from runner.tools import Work

LISTED = 12


def frontier(work: Work) -> Answer:
    """List the frontier: the best candidate, the best of each kind, the fastest on each case.

    Then those that failed and why, those that nobody has benchmarked, and what is left to spend.
    """
    loop = work.loop
    state = loop.state
    parts = [_kept(loop, number) for number in state.frontier[:LISTED]]
    parts = ["Frontier, best first:", *parts] if parts else ["Nothing has passed a benchmark yet."]
    if failed := candidates.failed(state)[-candidates.LISTED :]:
        parts += ["Failed:", *(_line(loop, number) for number in failed)]
    if untried := candidates.unmeasured(state)[-candidates.LISTED :]:
        parts += ["Not benchmarked:", *(_line(loop, number) for number in untried)]
    text, whole = fitted(parts), "\n".join(parts)
    return Answer(f"{text}\n{prompts.left(loop)}", "" if text == whole else whole)


def _kept(loop: Loop, number: int) -> str:
    cases = loop.state.evaluations[number].scored
    each = [f"{case.case} {units.speedup(case.timing.speedup)}" for case in cases if case.timing]
    by_case = f"\n  by case: {', '.join(each)}" if len(each) > 1 else ""
    return f"{_line(loop, number)}{by_case}"


def _line(loop: Loop, number: int) -> str:
    standing = candidates.standing(loop.state, number)
    return f"- {candidates.heading(loop.state, number)} — {standing}"
