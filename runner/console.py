"""What the command line prints for people: compact tables and one line per step.

It formats and prints nothing itself; the JSON documents are made elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from kernels.catalog import Problem, Tolerance
from runner import units
from runner.analysis.findings import GLOSSARY, Analysis, Finding
from runner.events import (
    CandidatePayload,
    ControlAction,
    ControlPayload,
    EvaluationPayload,
    Event,
    EventType,
    HarnessErrorPayload,
    MessageKind,
    MessagePayload,
    NotePayload,
    RunPayload,
    ToolCallPayload,
    ToolResultPayload,
)
from runner.loop import describe_best
from runner.results import CaseResult, Ceiling, CheckStatus, Evaluation, IntegrityCheck
from runner.state import RunState
from runner.tuning import Space

if TYPE_CHECKING:
    from runner.lint import Report, Trial  # it imports torch, which no other command needs

REASON_CHARACTERS = 200
SAID_CHARACTERS = 600
LARGE = 1e6
FIRST_STEPS, LAST_STEPS = 8, 24  # of a counterexample: how it begins, and what goes wrong


def table(header: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[int] = ()) -> str:
    """Columns two spaces apart; those in `right` are right-aligned."""
    lines = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    right = set(right)

    def laid_out(line: Sequence[str]) -> str:
        cells = (
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join(laid_out(line) for line in lines)


def problems(found: Sequence[Problem]) -> str:
    rows = []
    for problem in found:
        languages = sorted({kernel.language for kernel in problem.zoo})
        sizes = (f"{Space.of(problem, language).size:,} {language}" for language in languages)
        sets = sorted({name for case in problem.cases for name in case.sets})
        rows.append((problem.slug, problem.title, ", ".join(sets), ", ".join(sizes)))
    return table(("problem", "title", "case sets", "settings to search"), rows)


def evaluation(found: Evaluation) -> str:
    """Verdict, cases, integrity checks and what the compiler or the kernel printed."""
    lines = [f"{found.verdict.value}: {found.reason}" if found.reason else found.verdict.value]
    if found.speedup is not None:
        lines[0] += f"  {units.speedup(found.speedup)} (95% {units.interval(found.ci95)})"
    if not found.isolated:
        lines.append("! not isolated: numbers from here are not evidence")
    if found.cases:
        header = ("case", "verdict", "median", "baseline", "", "speedup", "95%", "GB/s", "FLOP/s")
        lines += ["", table(header, map(_case, found.cases), right=(2, 4, 5, 6, 7, 8))]
        lines += [words for case in found.cases if (words := _launch(case))]
    if found.integrity:
        lines += ["", table(("integrity check", "", "seen"), map(_check, found.integrity))]
    lines += ["", f"device {found.device.model}; timer {found.timer}"]
    lines += [f"isolation {found.isolation}"]
    for text in (found.compile_output, found.output):
        lines += ["", text.rstrip()] if text.strip() else []
    return "\n".join(lines)


def _launch(case: CaseResult) -> str:
    """What the host spends on launching, both sides; nothing on the host device itself."""
    timing = case.timing
    if timing is None or timing.launch_us is None:
        return ""
    words = f"{case.case}: {units.launch(timing.median_us, timing.launch_us)}"
    baseline = units.launch(timing.baseline_us, timing.baseline_launch_us)
    return f"{words} ({timing.baseline}: {baseline})" if baseline else words


def _check(check: IntegrityCheck) -> tuple[str, ...]:
    mark = {CheckStatus.passed: "", CheckStatus.failed: "! ", CheckStatus.not_judged: "? "}
    words = f"{mark[check.status]}{check.status.value.replace('_', ' ')}"
    return check.meaning.title, words, " ".join(check.detail.split())[:REASON_CHARACTERS]


def _case(case: CaseResult) -> tuple[str, ...]:
    timing = case.timing
    name = case.case if case.scored else f"{case.case} (checked only)"
    if timing is None:
        return (name, case.verdict.value, *(units.MISSING for _ in range(7)))
    return (
        name,
        case.verdict.value,
        units.duration_us(timing.median_us),
        timing.baseline,
        units.duration_us(timing.baseline_us),
        units.speedup(timing.speedup),
        units.interval(timing.ci95),
        units.rate_bytes(case.bytes_per_second),
        units.rate_flops(case.flops_per_second, case.dtype),
    )


def analysis(found: Analysis, source: str) -> str:
    """Verdict, what each kernel uses, findings with their source line, and the scope.

    Names and messages come from the candidate: what a terminal would take for a command is dropped.
    """
    lines = [f"{found.verdict.value}: {found.reason}" if found.reason else found.verdict.value]
    if kernels := found.resources.get("kernels"):
        header = (
            "kernel",
            "registers",
            "spilled",
            "shared",
            "warps",
            "limited by",
            "waves",
            "code",
        )
        rows = table(header, map(_kernel, kernels), right=(1, 2, 3, 4, 6, 7))
        target = found.resources["target"]
        lines += ["", f"{target}, {found.resources['case']}", rows]
    text = source.splitlines()
    for finding in found.findings:
        lines += ["", *_finding(finding, text)]
    lines += ["", *(f"scope: {sentence}" for sentence in found.scope)]
    return "\n".join(printable(line) for line in _single(lines))


def _single(lines: Iterable[str]) -> Iterable[str]:
    """Lines of which some, as tables are, are several."""
    return (line for several in lines for line in several.split("\n"))


def _kernel(kernel: dict[str, Any]) -> tuple[str, ...]:
    fits, waves = kernel["occupancy"], kernel["waves"]
    return (
        kernel["kernel"],
        str(kernel["registers"]),
        units.bytes_iec(kernel["spill_store_bytes"] + kernel["spill_load_bytes"]),
        units.bytes_iec(kernel["static_shared_bytes"] + kernel["dynamic_shared_bytes"]),
        f"{fits['warps']} ({fits['fraction']:.0%})",
        fits["limiter"],
        f"{waves[0]['waves']:.2f}" if waves else units.MISSING,
        units.bytes_iec(kernel["code_bytes"]),
    )


def _finding(finding: Finding, text: Sequence[str]) -> list[str]:
    place = f"{finding.source.file}:{finding.source.line}: " if finding.source else ""
    lines = [f"{place}{finding.severity.value}: {finding.message} [{finding.kind.value}]"]
    if finding.source and finding.source.line <= len(text):
        lines.append(f"    {text[finding.source.line - 1].strip()}")
    return [*lines, f"    {GLOSSARY[finding.kind].remedy}", *_counterexample(finding.evidence)]


def _counterexample(evidence: dict[str, Any]) -> list[str]:
    """The values under which it happens, and the steps to it; of many the first and the last."""
    lines = []
    if assumed := evidence.get("assumed"):
        values = ", ".join(f"{name} = {value}" for name, value in assumed.items())
        lines.append(f"    with {values}")
    steps = [f"      {step}" for step in evidence.get("steps", ())]
    if (left_out := len(steps) - FIRST_STEPS - LAST_STEPS) > 1:
        words = f"      … {left_out} steps more, which --json has …"
        steps = [*steps[:FIRST_STEPS], words, *steps[-LAST_STEPS:]]
    return lines + steps


def ceilings(found: Sequence[Ceiling]) -> str:
    rows = []
    for ceiling in found:
        rate = units.rate_bytes(ceiling.value)
        if ceiling.unit == "FLOP/s":
            rate = units.rate_flops(ceiling.value, ceiling.dtype)
        rows.append((ceiling.name, rate, ceiling.source, ceiling.detail))
    return table(("roof", "rate", "source", "how"), rows, right=(1,))


def lint(report: Report) -> str:
    """Per case and kernel, how far the error lies from the tolerance."""
    names = [trial.kernel for trial in report.cases[0].trials]
    rows = []
    for case in report.cases:
        name = case.case if case.scored else f"{case.case} (checked only)"
        rows.append((name, *(_trial(trial, case.tolerance) for trial in case.trials)))
    header = ("error ÷ tolerance", *names)
    lines = [f"{report.problem}: {'admissible' if report.admissible else 'NOT admissible'}", ""]
    lines += [table(header, rows, right=range(1, len(header))), ""]
    for case in report.cases:
        wrong = (trial for trial in case.trials if not trial.as_it_should)
        lines += [f"{case.case}: {_objection(trial)}" for trial in wrong]
    lines.append("Above 1 is refused. = is the answer here, to within a rounding.")
    lines.append(f"Scope: {report.scope}")
    return "\n".join(lines)


def _trial(trial: Trial, tolerance: Tolerance) -> str:
    mark = "" if trial.as_it_should else " !"
    if trial.max_rel_error is None or trial.norm_error is None:
        return ("passes" if trial.accepted else "refused") + mark
    if trial.accepted and trial.exact and not trial.honest:
        return "=" + mark
    worst = max(trial.max_rel_error / tolerance.element, trial.norm_error / tolerance.norm)
    return (units.significant(worst) if worst < LARGE else f"{worst:.0e}") + mark


def _objection(trial: Trial) -> str:
    if trial.honest:
        return f"{trial.kernel} must pass and is refused: {trial.reason}"
    why = "the answer is degenerate here" if trial.exact else "the tolerance is too loose"
    return f"{trial.kernel} must fail and passes: {why}"


def step(event: Event) -> str | None:
    """The line that tells of an event while a run goes on; None for events of no news.

    Words of agents, candidates and people are shown without what a terminal takes for a command.
    """
    if event.type not in _TOLD:
        return None
    line = _told(event)
    return None if line is None else printable(line)


def _told(event: Event) -> str | None:
    match event.decoded:
        case RunPayload(status=status, reason=reason):
            return f"{status.value}: {reason}"
        case MessagePayload() as message:
            return _message(message, talks=bool(event.artifacts))
        case ToolCallPayload() as call if call.tool != EVALUATE:
            return f"  → {call.tool} {_arguments(call.arguments)}".rstrip()
        case ToolResultPayload(ok=False, text=text):
            return f"  ✗ {_one_line(text, REASON_CHARACTERS)}"
        case CandidatePayload(number=number, idea=idea):
            return f"c{number}: {idea}"
        case EvaluationPayload(candidate=number, evaluation=found, scope=scope):
            name = f"c{number} ({scope})" if scope else f"c{number}"
            return f"{name}: {_outcome(found)} in {units.seconds(found.wall_s)}"
        case NotePayload(author=author, text=text):
            return f"note of {author}: {_one_line(text, SAID_CHARACTERS)}"
        case ControlPayload(action=action, by=by, text=text):
            words = f": {_one_line(text, SAID_CHARACTERS)}" if action is ControlAction.steer else ""
            return f"{action.value} requested by {by}{words}"
        case HarnessErrorPayload(where=where, error=error):
            return f"defect of the harness {where}: {error}"
    return None


_TOLD = {
    EventType.run,
    EventType.message,
    EventType.tool_call,
    EventType.tool_result,
    EventType.candidate,
    EventType.evaluation,
    EventType.note,
    EventType.control,
    EventType.harness_error,
}
EVALUATE = "evaluate"  # the call in the name of an agent that uses no tools: its candidate says it


def _message(message: MessagePayload, talks: bool) -> str | None:
    """Whoever proposes whole candidates says no more than their ideas, which are told anyway."""
    words = _one_line(message.text, SAID_CHARACTERS)
    match message.kind:
        case MessageKind.said if talks:
            return f"{message.author}: {words or '…'}{_cost(message)}"
        case MessageKind.brief:
            return f"— {message.stage} {message.ordinal}, {message.author}"
        case MessageKind.nudge | MessageKind.notice:
            return f"  ! {words}"
    return None  # the closing words stand below the table of candidates


def costs(event: Event) -> str | None:
    """What a turn cost that has been shown already; None if that is not known."""
    decoded = event.decoded
    cost = _cost(decoded) if isinstance(decoded, MessagePayload) else ""
    return f"  {cost.strip()}" if cost else None


def _cost(message: MessagePayload) -> str:
    used = message.usage
    if used is None:
        return ""
    return f" [{units.tokens(used.tokens)} tokens, {units.dollars(used.dollars)}]"


def _arguments(arguments: dict[str, Any]) -> str:
    short = (f"{name}={_one_line(str(value), 60)}" for name, value in arguments.items())
    return " ".join(short)


def _one_line(text: str, characters: int) -> str:
    words = " ".join(text.split())
    return words if len(words) <= characters else f"{words[:characters]}…"


def printable(text: str) -> str:
    """The text without control characters, which a terminal would obey; lines stay lines."""
    return "".join(each for each in text if each == "\n" or each.isprintable())


def run(state: RunState) -> str:
    """The candidates of a run, and how it ended."""
    rows = []
    for number, candidate in state.candidates.items():
        found = state.evaluations.get(number)
        rows.append(
            (
                f"c{number}" + ("*" if number == state.best else ""),
                f"c{candidate.parent}" if candidate.parent else units.MISSING,
                _verdict(state, number),
                units.speedup(found.speedup if found else None),
                units.interval(found.ci95 if found else None),
                " ".join(f"{name}={value}" for name, value in candidate.constants.items()),
            )
        )
    header = ("", "parent", "verdict", "speedup", "95%", "constants")
    listing = table(header, rows, right=(3, 4))
    lines = [listing, "", f"{state.status.value}: {state.reason}", f"* {describe_best(state)}"]
    if state.tokens:
        lines.append(f"{state.tokens:,} tokens, {units.dollars(state.dollars)}")
    if state.summary:
        lines += ["", state.summary]
    return printable("\n".join(lines))


def _verdict(state: RunState, number: int) -> str:
    """Of the whole evaluation; without one, what narrower ones found."""
    if (found := state.evaluations.get(number)) is not None:
        return found.verdict.value
    trials = [
        f"{scope}: {e.verdict.value}" for (n, scope), e in state.trials.items() if n == number
    ]
    return f"not evaluated ({'; '.join(trials)})" if trials else "not evaluated"


def _outcome(found: Evaluation) -> str:
    if found.speedup is not None:
        return f"{units.speedup(found.speedup)} (95% {units.interval(found.ci95)})"
    reason = " ".join(found.reason.split())[:REASON_CHARACTERS]
    return f"{found.verdict.value}: {reason}" if reason else found.verdict.value
