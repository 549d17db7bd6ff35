"""Has a candidate analysed: what the compiler made of it, and what is wrong with that."""

from __future__ import annotations

from runner import examination
from runner.answers import analyses, candidates
from runner.loop import Answer
from runner.tools import Work


def analyze(work: Work, candidate: int, arch: str = "", case: str = "") -> Answer:
    """Analyse what the compiler makes of a candidate, without a device.

    Finds spills, low occupancy, narrow or scattered accesses, missing matrix instructions and
    broken barriers; gives registers, shared memory and waves of each kernel. A new candidate is
    analysed for the run's device anyway: call this for another target or case. It is advice, and
    measuring decides.

    Arguments:
        candidate: Its number: 3 for c3.
        arch: The target, such as sm_90; empty for that of this run.
        case: The case to launch it on; empty for the first timed one.
    """
    candidates.known(work.loop, candidate)
    before = len(work.loop.state.analyses)
    found = examination.analyze(work.loop, candidate, arch, case)
    known = found is not None and len(work.loop.state.analyses) == before
    return analyses.report(work.loop, found, analyses.KNOWN if known else "")
