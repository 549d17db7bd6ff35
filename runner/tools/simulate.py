"""Has a candidate simulated: its kernels run on the host and every access is watched."""

from __future__ import annotations

from runner import examination
from runner.answers import analyses, candidates
from runner.loop import Answer
from runner.spec import SpecError
from runner.tools import Work


def simulate(work: Work, candidate: int, case: str = "") -> Answer:
    """Run a Triton candidate in an interpreter that watches every access, without a device.

    Finds accesses out of bounds, races, reads of memory that nobody wrote and wrong results, each
    with its line. What it does not find may still be there: it is one small case.

    Arguments:
        candidate: Its number: 3 for c3.
        case: The case to run it on; empty for a small odd one, which is best for finding faults.
    """
    found = candidates.known(work.loop, candidate)
    if found.language != "triton":
        problem = f"c{candidate} is {found.language}, and only Triton kernels are simulated."
        raise SpecError("candidate", problem, "Judge it with check instead.")
    before = len(work.loop.state.analyses)
    report = examination.simulate(work.loop, candidate, case)
    known = report is not None and len(work.loop.state.analyses) == before
    return analyses.report(work.loop, report, analyses.KNOWN if known else "")
