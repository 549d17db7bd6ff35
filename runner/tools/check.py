"""Has a candidate judged without timing it."""

from __future__ import annotations

from runner.answers import candidates, evaluations
from runner.loop import CUT_SHORT, Answer
from runner.tools import Work

SCOPE = "check"
BENCHMARKED = "Its benchmark checked it:"


def check(work: Work, candidate: int) -> Answer:
    """Judge a candidate on all cases of this run, without timing: is it correct?

    Costs less than a benchmark, and counts as one evaluation. A benchmark checks too: check first
    what is risky, and benchmark at once what is not.

    Arguments:
        candidate: Its number: 3 for c3.
    """
    loop = work.loop
    candidates.known(loop, candidate)
    if loop.state.evaluation(candidate) is not None:
        return evaluations.report(loop, candidate, note=f"{evaluations.KNOWN} {BENCHMARKED}")
    known = loop.state.evaluation(candidate, SCOPE) is not None
    if loop.evaluate(candidate, SCOPE) is None:
        return CUT_SHORT
    return evaluations.report(loop, candidate, SCOPE, evaluations.KNOWN if known else "")
