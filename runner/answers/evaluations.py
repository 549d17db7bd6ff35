"""What an evaluation found, as an agent is told: verdict, cases with their intervals, what failed.

Every number is one of the evaluation; what is missing is said with its reason.
"""

from __future__ import annotations

from runner import prompts, roofs, units
from runner.answers.sources import blamed_lines, excerpt
from runner.answers.text import cut, fitted, one_line, plain, tail
from runner.loop import Answer, Loop, describe, describe_speedup
from runner.results import CaseResult, CheckStatus, Evaluation, Timing, Verdict

OUTPUT_CHARACTERS = 1_200
KNOWN = "Known already; nothing was measured again."


def report(loop: Loop, number: int, scope: str = "", note: str = "") -> Answer:
    """The answer of a tool about an evaluation that was made; `note` comes first."""
    found = loop.state.evaluation(number, scope)
    assert found is not None, f"c{number} has no evaluation of scope {scope!r}"
    printed = plain(loop.printed(number, scope)).strip()
    parts = [note] if note else []
    parts += [_headline(number, found, scope)]
    if found.verdict is Verdict.compile_error:
        parts += _place(loop.source(number), found)
    parts += [_timed(loop, case) for case in found.cases if case.timing]
    parts += _untimed(loop, found)
    parts += _integrity(found)
    if printed and found.verdict is Verdict.compile_error:
        parts.append(cut(printed, OUTPUT_CHARACTERS))  # the first error is the one that counts
    elif printed and found.verdict is not Verdict.passed:
        parts.append(f"Output:\n{tail(printed, OUTPUT_CHARACTERS)}")
    closing = [_rank(loop, number, scope), prompts.left(loop)]
    text = fitted(parts)
    details = [] if text == "\n".join(parts) else parts
    if found.verdict is Verdict.passed or len(printed) > OUTPUT_CHARACTERS:
        details = [*details, printed]
    return Answer("\n".join([text, *filter(None, closing)]), "\n".join(details))


def _headline(number: int, found: Evaluation, scope: str) -> str:
    words = f"c{number}: {found.verdict.value}"
    if found.speedup is not None:
        words += f", {describe_speedup(found)}"
        words += f" on {scope.removeprefix('case ')}" if scope else ""
    elif found.verdict is Verdict.passed:
        words += ", not timed: a check judges alone" if scope == "check" else ", no case was timed"
    if found.reason and found.reason not in {case.reason for case in found.cases}:
        words += f": {one_line(found.reason, 500)}"
    if found.verdict is Verdict.harness_error:
        words += " (a fault of the harness, not of the kernel)"
    return words if found.isolated else f"{words}\nNot isolated: numbers from here are no evidence."


def _place(source: str, found: Evaluation) -> list[str]:
    """The source at the first line that the compiler names."""
    lines = blamed_lines(f"{found.reason}\n{found.compile_output}")[:1]
    return [quoted for line in lines if (quoted := excerpt(source, line))]


def _timed(loop: Loop, case: CaseResult) -> str:
    timing = case.timing
    assert timing is not None
    parts = [ratio(timing), times(timing), units.rate_bytes(case.bytes_per_second)]
    share = roofs.share(loop.state.ceilings, case)
    parts.append(f"{share.words} reached" if share else "share of the roofline not known")
    if launch := units.launch(timing.median_us, timing.launch_us):
        parts.append(launch)
    return f"- {case.case}: {'; '.join(parts)}"


def ratio(timing: Timing) -> str:
    """`1.62× over torch (95% 1.60–1.64), faster`."""
    words = f"{units.speedup(timing.speedup)} over {timing.baseline}"
    return f"{words} (95% {units.interval(timing.ci95)}), {timing.outcome.value}"


def times(timing: Timing) -> str:
    """`617 µs against 1.00 ms`."""
    return f"{units.duration_us(timing.median_us)} against {units.duration_us(timing.baseline_us)}"


def _untimed(loop: Loop, found: Evaluation) -> list[str]:
    """Failed cases one by one, those that passed their check on one line."""
    lines, passed = [], []
    for case in found.cases:
        if case.timing is not None:
            continue
        if case.verdict is Verdict.passed:
            passed.append(case.case)
            continue
        named = f"{loop.problem.slug} {case.case}: "
        reason = f": {one_line(case.reason.removeprefix(named))}" if case.reason else ""
        lines.append(f"- {case.case}: {case.verdict.value}{reason}{_error(loop, case)}")
    if passed:
        lines.append(f"Checked and passed: {', '.join(passed)}.")
    return lines


def _error(loop: Loop, case: CaseResult) -> str:
    """The error over all of a judged case's output beside what the contract tolerates."""
    tolerance = loop.problem.tolerances.get(case.dtype)
    if case.norm_error is None or tolerance is None:
        return ""
    return f" (norm error {case.norm_error:.2g}, allowed {tolerance.norm:.2g})"


def _integrity(found: Evaluation) -> list[str]:
    """The checks that did not pass, each with its evidence."""
    return [
        f"Integrity, {check.meaning.title}: {check.status.value.replace('_', ' ')}:"
        f" {one_line(check.detail)}"
        for check in found.integrity
        if check.status is not CheckStatus.passed
    ]


def _rank(loop: Loop, number: int, scope: str) -> str:
    """Where the candidate stands among the others of the run."""
    state = loop.state
    if scope.startswith("case "):
        return f"One case does not rank.{_best_on(loop, number, scope.removeprefix('case '))}"
    if scope:
        return ""
    if state.best == number:
        return "It is the best candidate so far."
    if state.best is not None and number in state.ranked:
        place = state.ranked.index(number) + 1
        return f"Rank {place} of {len(state.ranked)}; best is {describe(state, state.best)}."
    return ""


def _best_on(loop: Loop, number: int, name: str) -> str:
    """What the best candidate reaches on the same case."""
    best, evaluation = loop.state.best, loop.state.best_evaluation
    if best is None or evaluation is None or best == number:
        return ""
    timings = [case.timing for case in evaluation.cases if case.case == name and case.timing]
    return f" The best candidate, c{best}, there: {ratio(timings[0])}." if timings else ""
