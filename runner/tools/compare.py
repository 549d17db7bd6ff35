"""Compares two candidates: source, resources, times."""

from __future__ import annotations

from dataclasses import replace

from runner import units
from runner.answers import analyses, candidates, evaluations
from runner.answers.sources import difference
from runner.answers.text import cut
from runner.loop import Answer, Loop
from runner.results import Timing
from runner.spec import SpecError
from runner.tools import Work

DIFF_CHARACTERS = 2_000


def compare(work: Work, first: int, second: int) -> Answer:
    """Compare two candidates: what differs in source, resources and times on each case.

    Times come from separate evaluations against the same baseline, so the comparison is indirect.

    Arguments:
        first: The number of the one to start from, such as the parent.
        second: The number of the one to compare with it.
    """
    loop = work.loop
    candidates.known(loop, first, "first")
    candidates.known(loop, second, "second")
    if first == second:
        raise SpecError("second", f"is c{first} too.", "Give another candidate.")
    parts = [_line(loop, number) for number in (first, second)]
    parts += ["", "Times:", *_times(loop, first, second)]
    parts += ["", "Resources:", *_resources(loop, first, second)]
    diff = difference(loop.source(first), loop.source(second), (f"c{first}", f"c{second}"))
    parts += ["", cut(diff, DIFF_CHARACTERS)]
    return Answer("\n".join(parts), diff if len(diff) > DIFF_CHARACTERS else "")


def _line(loop: Loop, number: int) -> str:
    standing = candidates.standing(loop.state, number)
    return f"{candidates.heading(loop.state, number)} — {standing}"


def _times(loop: Loop, first: int, second: int) -> list[str]:
    """Each case that both were timed on."""
    before, after = _timings(loop, first), _timings(loop, second)
    both = [name for name in before if name in after]
    if not both:
        lacking = [f"c{n}" for n, found in ((first, before), (second, after)) if not found]
        if not lacking:
            return [f"c{first} and c{second} were timed on no case in common: benchmark both."]
        return [f"{' and '.join(lacking)} not timed: call benchmark to compare times."]
    lines = []
    for name in both:
        lines += [f"- {name}: {_indirect(before[name], after[name], first, second)}"]
        lines += [f"  c{first} {_one(before[name])}", f"  c{second} {_one(after[name])}"]
    return [*lines, "Indirect: two evaluations, each against the baseline beside it."]


def _timings(loop: Loop, number: int) -> dict[str, Timing]:
    """By case; a whole evaluation's where there is one, else those of single cases."""
    found: dict[str, Timing] = {}
    trials = [trial for (owner, _), trial in loop.state.trials.items() if owner == number]
    whole = loop.state.evaluations.get(number)
    for evaluation in [*trials, *([whole] if whole else [])]:
        found |= {case.case: case.timing for case in evaluation.cases if case.timing}
    return found


def _one(timing: Timing) -> str:
    return f"{evaluations.ratio(timing)}; {evaluations.times(timing)}"


def _indirect(before: Timing, after: Timing, first: int, second: int) -> str:
    """The ratio of the two speedups, with the widest interval that theirs allow."""
    if before.baseline != after.baseline:
        return f"not comparable: over {before.baseline} and over {after.baseline}"
    ends = (after.ci95[0] / before.ci95[1], after.ci95[1] / before.ci95[0])
    ratio = units.speedup(after.speedup / before.speedup)
    words = "cannot be told apart"
    if ends[0] > 1 or ends[1] < 1:
        words = f"c{second} is {'faster' if ends[0] > 1 else 'slower'}"
    return f"{words}: c{second} is {ratio} as fast as c{first} (within {units.interval(ends)})"


def _resources(loop: Loop, first: int, second: int) -> list[str]:
    """What changed for each kernel, where both were analysed for the same target and case."""
    made = loop.state.analyses
    for key, before in made.items():
        after = made.get(replace(key, candidate=second))
        if key.candidate == first and key.tool == "analyze" and after is not None:
            return [f"{key.target} on {key.case}", *analyses.changes(before, after)]
    return [f"c{first} and c{second} were not analysed for the same target and case."]
