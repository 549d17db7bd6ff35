"""One candidate in, one simulation out: its kernels run on the host and every access is watched.

The parent's side. It never imports torch and never runs candidate code: inputs, oracle and judge
have forks of their own, and the verdict is made here. A simulation that finds nothing certifies
nothing: it is one case, in an interpreter, of code that could deceive its own instruments.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernels.catalog import Case, Problem, UnknownProblem, load_problem
from runner import languages
from runner.analysis import simulate_station
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    Source,
    verdict_of,
)
from runner.analysis.simulate_report import Report, TroubleKind
from runner.analysis.simulate_words import (
    finding_of,
    note_finding,
    scope_of,
    source_at,
    trouble_finding,
)
from runner.evaluate.buffers import Layout, plan, set_bytes
from runner.evaluate.channel import BadMessage, Message
from runner.evaluate.devices import cpu_count
from runner.evaluate.host_memory import HostMemory
from runner.evaluate.keeper import (
    Child,
    ChildEnded,
    DeadlinePassed,
    Watch,
    ZygoteDied,
    exit_words,
)
from runner.spec import Limits, SpecError
from runner.wire import WireError, from_json, to_json

DEADLINE_S = 60.0
JUDGE_S = 120.0  # for one answer of ours
REPORT_BYTES = 4 << 20
OWN_TENSORS = 16  # what a candidate may allocate, and its shadow, in sets of tensors
SUSPECTS = 4  # loads with undefined lanes that are tried one by one


@dataclass(frozen=True)
class SimulationSpec:
    """What to simulate. `case` None is the problem's small case; `file` names the source.

    `deadline_s` bounds each run of the candidate.
    """

    problem: str
    source: str
    language: str = "triton"
    case: str | None = None
    file: str = "candidate.py"
    deadline_s: float = DEADLINE_S
    limits: Limits = field(default_factory=Limits)


class Blamed(Exception):
    """The candidate ended the simulation; `finding` says how, `verdict` what that means."""

    def __init__(self, verdict: AnalysisVerdict, finding: Finding) -> None:
        super().__init__(finding.message)
        self.verdict, self.finding = verdict, finding


def simulate(spec: SimulationSpec, *, cancel: threading.Event | None = None) -> Analysis:
    """Simulate one candidate on one case; blocks. Every failing candidate is a result.

    Raises SpecError for a request that cannot be met, and Cancelled.
    """
    request = Request.of(spec, cancel)
    simulate_station.prepare()
    for attempt in range(2):
        try:
            return _simulated(request)
        except Blamed as blamed:
            scope = scope_of(request.case, None)
            return Analysis(blamed.verdict, str(blamed), (blamed.finding,), scope)
        except ZygoteDied as died:
            if attempt:
                words = f"twice it took down the process that had started it ({died})"
                finding = Finding(FindingKind.run_error, Severity.error, words)
                scope = scope_of(request.case, None)
                return Analysis(AnalysisVerdict.error, words, (finding,), scope)
    raise AssertionError("unreachable")


@dataclass(frozen=True)
class Request:
    """A validated SimulationSpec with all it refers to."""

    spec: SimulationSpec
    problem: Problem
    case: Case
    cancel: threading.Event | None

    @classmethod
    def of(cls, spec: SimulationSpec, cancel: threading.Event | None) -> Request:
        try:
            problem = load_problem(spec.problem)
        except UnknownProblem as error:
            raise SpecError("problem", str(error), error.remedy) from error
        if spec.language != "triton":
            remedy = "Give a Python file with Triton kernels."
            raise SpecError("language", f"{spec.language!r} is not simulated.", remedy)
        return cls(spec, problem, _case(problem, spec.case), cancel)


def _case(problem: Problem, name: str | None) -> Case:
    if name is None:
        return small_case(problem)
    for case in problem.cases:
        if case.name == name:
            return case
    remedy = f"Use one of: {', '.join(case.name for case in problem.cases)}."
    raise SpecError("case", f"{problem.slug} has no case {name!r}.", remedy)


def small_case(problem: Problem) -> Case:
    """The smallest odd case of a GPU set: no dimension of 1, inputs drawn as usual, bf16 first."""

    def rank(case: Case) -> tuple[bool, bool, bool, bool, int]:
        on_gpu = any(name.startswith("gpu") for name in case.sets)
        flat = min(case.dims.values(), default=1) < 16
        return not on_gpu, flat, bool(case.draws), case.scored, case.bytes_moved + case.flops // 64

    return min(problem.cases, key=rank)


def _simulated(request: Request) -> Analysis:
    with simulate_station.borrowed(request.cancel) as zygote, zygote.folder.subfolder() as folder:
        artifact = _compiled(request, folder)
        layout = plan(request.problem, request.case, 1)
        shared, descriptors = HostMemory.create(layout)
        try:
            bench = Bench(request, zygote, folder, artifact, layout, shared, descriptors[0])
            return _conclude(bench)
        finally:
            shared.close()
            for descriptor in descriptors:
                os.close(descriptor)


def _compiled(request: Request, folder: Path) -> str:
    """The candidate's file in the work folder. Raises Blamed for one that is no Python module."""
    compiled = languages.get("triton").compile(
        request.spec.source, folder, request.spec.limits, cancel=request.cancel
    )
    if compiled.artifact is None:
        found = re.match(r"[^:]+:(\d+): ", compiled.reason)
        source = source_at(int(found[1]) if found else 0, request.spec.file)
        finding = Finding(FindingKind.compile_error, Severity.error, compiled.reason, source)
        raise Blamed(AnalysisVerdict.error, finding)
    return str(compiled.artifact)


@dataclass(frozen=True)
class Outcome:
    """One run: what was seen, what the judge said of each output, who wrote the wrong elements."""

    report: Report
    changed: tuple[str, ...] = ()
    judged: tuple[Message, ...] = ()
    writers: tuple[tuple[int, int], ...] = ()  # line and program of the first wrong elements

    @property
    def wrong(self) -> bool:
        return any(answer["reason"] for answer in self.judged)


class Bench:
    """Everything one candidate's simulation needs, and the questions asked of its forks."""

    def __init__(
        self,
        request: Request,
        zygote: simulate_station.Station,
        folder: Path,
        artifact: str,
        layout: Layout,
        shared: HostMemory,
        tensors: int,
    ) -> None:
        self.request, self.zygote, self.folder = request, zygote, folder
        self.artifact, self.layout = artifact, layout
        self.shared, self.tensors = shared, tensors
        self.seed = secrets.randbits(62)

    def run(self, undefined: Sequence[int] | None = None) -> Outcome:
        """One run of the candidate on fresh copies of the same inputs, judged.

        `undefined`: the loads whose masked-off lanes hold garbage; None means every load.
        """
        for region in self.layout.regions:
            if region.output:
                self.shared.poison(region)
        self._ours({"do": "fill"})
        report, lines = self._candidate(None if undefined is None else list(undefined))
        if report.trouble is not None:
            return Outcome(report)
        sampled = any(each.simulated < each.programs for each in report.launches)
        if sampled and len(report.launches) > 1:
            return Outcome(report)
        answer = self._ours({"do": "judge", "sampled": sampled})
        judged = tuple(answer["outputs"])
        return Outcome(report, tuple(answer["changed"]), judged, self._writers(judged, lines))

    def _writers(self, judged: Sequence[Message], lines: bytes) -> tuple[tuple[int, int], ...]:
        """Of each output's first wrong element, who wrote it."""
        outputs = [region for region in self.layout.regions if region.output]
        writers, start = [], 0
        for region, answer in zip(outputs, judged, strict=True):
            elements = _elements(region.shape)
            found = (0, -1)
            if answer["worst"]:
                place = answer["worst"][0]["place"]
                (line,) = struct.unpack_from("=i", lines, 4 * (start + place))
                (program,) = struct.unpack_from("=i", lines, 4 * (start + elements + place))
                found = (line, program)
            writers.append(found)
            start += 2 * elements
        return tuple(writers)

    def _ours(self, question: Message) -> Message:
        """Ask a fork in which no candidate runs. What goes wrong there is our defect."""
        message = {
            **question,
            "layout": to_json(self.layout),
            "problem": self.request.problem.slug,
            "case": self.request.case.name,
            "seed": self.seed,
        }
        watch = Watch(time.monotonic() + JUDGE_S, self.request.cancel)
        with _ended(self.zygote.fork(self.folder, None, 65536)) as child:
            try:
                return child.ask(message, watch, [self.tensors]).message
            except (ChildEnded, DeadlinePassed, BadMessage) as error:
                words = child.drain.text.strip()[-2000:]
                raise RuntimeError(f"{question['do']} was {error}: {words}") from error

    def _candidate(self, undefined: list[int] | None) -> tuple[Report, bytes]:
        """Run the candidate. Raises Blamed when it does not answer."""
        message = {
            "do": "simulate",
            "artifact": self.artifact,
            "layout": to_json(self.layout),
            "undefined": undefined,
        }
        watch = Watch(time.monotonic() + self.request.spec.deadline_s, self.request.cancel)
        lines, report = os.memfd_create("lines"), os.memfd_create("report")
        try:
            limits = self.request.spec.limits
            child = self.zygote.fork(self.folder, self._rlimits(), limits.output_bytes)
            with _ended(child), _blaming(self.request.spec.deadline_s):
                child.ask(message, watch, [self.tensors, lines, report])
            expected = 8 * sum(_elements(r.shape) for r in self.layout.regions if r.output)
            written = os.pread(lines, expected, 0)
            return _decoded(report), written.ljust(expected, b"\0")
        finally:
            os.close(lines)
            os.close(report)

    def _rlimits(self) -> dict[str, Any]:
        spec = self.request.spec
        tensors = OWN_TENSORS * set_bytes(self.request.problem, self.request.case)
        return {
            "cpu_s": int(spec.deadline_s * cpu_count()) + 10,
            "address_space_bytes": spec.limits.memory_bytes + tensors,
        }


@contextmanager
def _ended(child: Child) -> Iterator[Child]:
    try:
        yield child
    finally:
        child.end()


@contextmanager
def _blaming(deadline_s: float) -> Iterator[None]:
    """What the candidate's process does instead of answering is the candidate's doing."""
    late = AnalysisVerdict.incomplete, FindingKind.deadline_passed
    broken = AnalysisVerdict.error, FindingKind.run_error
    try:
        yield
    except DeadlinePassed:
        (verdict, kind), words = late, f"it did not finish within {deadline_s:g} s"
    except ChildEnded as ended:
        (verdict, kind), words = broken, f"the candidate {exit_words(ended.status)}"
        if ended.status == -signal.SIGXCPU:
            (verdict, kind), words = late, "it used up its processor time"
    except BadMessage as error:
        (verdict, kind), words = broken, f"forged words: {error}"
    else:
        return
    raise Blamed(verdict, Finding(kind, Severity.error, words))


def _decoded(report: int) -> Report:
    """Strictly: the candidate shares a process with who wrote it."""
    size = os.fstat(report).st_size
    try:
        if size > REPORT_BYTES:
            raise ValueError(f"{size} bytes")
        return from_json(Report, json.loads(os.pread(report, size, 0)))
    except (WireError, ValueError, RecursionError) as error:
        words = f"a forged report: {error}"
        finding = Finding(FindingKind.run_error, Severity.error, words)
        raise Blamed(AnalysisVerdict.error, finding) from None


def _conclude(bench: Bench) -> Analysis:
    """Run, and where the result is wrong find out whether undefined lanes are to blame."""
    request, file = bench.request, bench.request.spec.file
    outcome = bench.run()
    report = outcome.report
    findings = [finding_of(each, file) for each in report.sightings]
    findings += [note_finding(each, file) for each in report.notes]
    if outcome.wrong and report.undefined_lines:
        blamed, outcome = _undefined_lanes(bench, outcome)
        findings += blamed
    findings += _mismatches(outcome, file)
    verdict, reason = _shortfall(report, findings, file)
    findings.sort(key=_causes_first)
    return Analysis(
        verdict=verdict or verdict_of(findings),
        reason=reason or _summary(findings),
        findings=tuple(findings),
        scope=scope_of(request.case, report, compared=bool(outcome.judged)),
        resources={"case": request.case.name, "launches": to_json(report.launches)},
    )


def _causes_first(finding: Finding) -> tuple[bool, int]:
    """By line; a wrong result is most often the consequence of what else was found."""
    line = finding.source.line if finding.source else 0
    return finding.kind is FindingKind.oracle_mismatch, line


def _undefined_lanes(bench: Bench, wrong: Outcome) -> tuple[list[Finding], Outcome]:
    """Which loads' undefined lanes reach the result: those that alone make it wrong.

    With zeros there, as on the run returned, what is still wrong has another reason.
    """
    innocent = bench.run(undefined=())
    if innocent.report.trouble is not None or (
        innocent.wrong
        and [a["worst"] for a in innocent.judged] == [a["worst"] for a in wrong.judged]
    ):
        return [], wrong
    guilty = []
    for line in wrong.report.undefined_lines[:SUSPECTS]:
        outcome = bench.run(undefined=[line])
        if outcome.report.trouble is not None or outcome.wrong:
            guilty.append(line)
    message = "lanes that the mask turns off have no defined value here, and reach the result"
    return [
        Finding(
            FindingKind.uninitialised_read,
            Severity.error,
            message,
            Source(bench.request.spec.file, line),
            evidence={"remedy": "give other="},
        )
        for line in guilty or wrong.report.undefined_lines[:1]
    ], innocent


def _mismatches(outcome: Outcome, file: str) -> list[Finding]:
    """What the judge said, at the line that wrote the first wrong element."""
    findings = []
    changed = {each.tensor for each in outcome.report.sightings if each.kind == "input_write"}
    if outcome.changed and not changed:
        words = f"input {', '.join(outcome.changed)} was changed"
        findings.append(Finding(FindingKind.oracle_mismatch, Severity.error, words))
    for position, answer in enumerate(outcome.judged):
        if not answer["reason"]:
            continue
        line, program = outcome.writers[position]
        line = line or outcome.report.stored_at[position]
        evidence = {
            "tensor": answer["name"],
            "wrong_elements": answer["wrong"],
            "never_written": answer["unwritten"],
            "elements": answer["worst"],
            "program": _program(outcome.report, program),
        }
        findings.append(
            Finding(
                FindingKind.oracle_mismatch,
                Severity.error,
                _mismatch_words(answer),
                source_at(line, file),
                evidence=evidence,
            )
        )
    return findings


def _mismatch_words(answer: Message) -> str:
    parts = []
    if answer["unwritten"]:
        parts.append(f"{answer['unwritten']} elements of {answer['name']} were never written")
    if answer["worst"] and (answer["wrong"] or not answer["unwritten"]):
        first = answer["worst"][0]
        index = ", ".join(map(str, first["index"]))
        parts.append(
            f"{answer['wrong']} elements of {answer['name']} are wrong: [{index}] is"
            f" {first['got']}, expected {first['expected']}"
            if answer["wrong"]
            else answer["reason"]
        )
    return "; ".join(parts) or answer["reason"]


def _program(report: Report, number: int) -> list[int] | None:
    """The program of the last launch that has this number in its grid, last axis fastest."""
    if number < 0 or not report.launches:
        return None
    _, rows, columns = report.launches[-1].grid
    return [number // (rows * columns), number // columns % rows, number % columns]


def _shortfall(
    report: Report, findings: list[Finding], file: str
) -> tuple[AnalysisVerdict | None, str]:
    """What kept the simulation from its end; None when nothing did."""
    trouble = report.trouble
    if trouble is None and report.launches:
        return None, ""
    if trouble is None:
        words = "run launched no Triton kernel, so that there was no memory to watch"
        findings.append(Finding(FindingKind.not_captured, Severity.warning, words))
        return AnalysisVerdict.incomplete, words
    finding = trouble_finding(trouble, file)
    findings.append(finding)
    if trouble.kind is TroubleKind.answer:
        return None, ""
    failed = trouble.kind in (TroubleKind.load, TroubleKind.run)
    return (
        AnalysisVerdict.error if failed else AnalysisVerdict.incomplete,
        finding.message,
    )


def _summary(findings: list[Finding]) -> str:
    """The first finding in full, and how many there are besides."""
    if not findings:
        return "nothing was found on this case, which certifies nothing"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return findings[0].message + more


def _elements(shape: tuple[int, ...]) -> int:
    elements = 1
    for size in shape:
        elements *= size
    return elements
