"""Has a candidate judged and timed."""

from __future__ import annotations

from runner.answers import candidates, evaluations
from runner.loop import CUT_SHORT, Answer, Loop
from runner.spec import SpecError
from runner.tools import Work


def benchmark(work: Work, candidate: int, case: str = "") -> Answer:
    """Judge a candidate and time it against the baseline, interleaved, with a 95% interval.

    Counts as one evaluation. Without a case it covers all of them, and that alone makes a candidate
    rank: one failing case loses it. What was measured is not measured again.

    Arguments:
        candidate: Its number: 3 for c3.
        case: One timed case to measure, which takes less time; empty for all cases of this run.
    """
    loop = work.loop
    candidates.known(loop, candidate)
    if case:
        _require_timed(loop, case)
        if loop.state.evaluation(candidate) is not None:
            note = f"{evaluations.KNOWN} Its whole benchmark covers {case}:"
            return evaluations.report(loop, candidate, note=note)
    scope = f"case {case}" if case else ""
    known = loop.state.evaluation(candidate, scope) is not None
    if loop.evaluate(candidate, scope) is None:
        return CUT_SHORT
    return evaluations.report(loop, candidate, scope, evaluations.KNOWN if known else "")


def _require_timed(loop: Loop, name: str) -> None:
    """Raises SpecError for a case that this run does not time."""
    cases = loop.problem.cases_in(loop.spec.case_set)
    timed = [case.name for case in cases if case.scored]
    if name in timed:
        return
    checked = name in {case.name for case in cases}
    problem = (
        f"{name} is checked, not timed." if checked else f"this run has no case {name[:80]!r}."
    )
    raise SpecError("case", problem, f"Use one of: {', '.join(timed)}.")
