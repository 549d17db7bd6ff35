"""Asks for a candidate's hardware counters, and says where there are none."""

from __future__ import annotations

from runner import roofs
from runner.answers import analyses, candidates
from runner.events import ProfilePayload
from runner.loop import Answer, Loop
from runner.spec import device_kind
from runner.tools import Work

UNAVAILABLE = {
    "host": "candidates on the host may not read performance counters (perf_event_open)",
    "cuda": "the harness has no profiler for CUDA devices: it reads no hardware counters",
}


def profile(work: Work, candidate: int) -> Answer:
    """Profile a candidate where its device offers a profiler; otherwise say why there is none.

    Without a profiler it gives what is known instead: resources and the reached share of the roofs.

    Arguments:
        candidate: Its number: 3 for c3.
    """
    candidates.known(work.loop, candidate)
    reason = UNAVAILABLE[device_kind(work.loop.spec.device)]
    work.loop.record_profile(ProfilePayload(candidate, "none", False, reason))
    instead = _instead(work.loop, candidate)
    known = "\n".join(["Known instead:", *instead]) if instead else "Benchmark it for its roofline."
    return Answer(f"c{candidate}: no profile: {reason}.\n{known}")


def _instead(loop: Loop, number: int) -> list[str]:
    """The share of the roofs on each timed case, and what each kernel uses."""
    lines = []
    evaluation = loop.state.evaluations.get(number)
    for case in evaluation.scored if evaluation else ():
        if (share := roofs.share(loop.state.ceilings, case)) is not None:
            lines.append(f"- {case.case}: {share.words}")
    for key, found in loop.state.analyses.items():
        if key.candidate == number and key.tool == "analyze":
            lines += [f"- {line} ({key.target})" for line in analyses.kernel_lines(found)]
    return lines
