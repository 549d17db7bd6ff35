"""One candidate in, one simulation out: its kernels run on the host and every access is watched.

The parent's side. It never imports torch and never runs candidate code: inputs, oracle and judge
have forks of their own, and the verdict is made here. A simulation that finds nothing certifies
nothing: it is one case, in an interpreter, of code that could deceive its own instruments.
"""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path

from runner import languages
from runner.analysis import simulate_station
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Blamed,
    Finding,
    FindingKind,
    Severity,
    Source,
    verdict_of,
)
from runner.analysis.memory_sightings import SightingKind
from runner.analysis.simulate_bench import Bench, Outcome, sampled
from runner.analysis.simulate_report import Report, TroubleKind
from runner.analysis.simulate_request import Request, SimulationSpec
from runner.analysis.simulate_words import (
    finding_of,
    note_finding,
    scope_of,
    source_at,
    trouble_finding,
)
from runner.evaluate.buffers import plan
from runner.evaluate.channel import Message
from runner.evaluate.host_memory import HostMemory
from runner.evaluate.keeper import ZygoteDied
from runner.wire import to_json

SUSPECTS = 4  # loads with undefined lanes that are tried one by one


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
        reason=reason or _summary(findings, report),
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
    seen = {each.kind for each in outcome.report.sightings}
    if outcome.changed and SightingKind.input_write not in seen:
        words = f"input {', '.join(outcome.changed)} was changed"
        findings.append(Finding(FindingKind.input_write, Severity.error, words))
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
    """The program of the last launch that has this number in its grid, last axis fastest.

    Programs are counted as they were run, so a sample leaves that unknown.
    """
    if number < 0 or not report.launches or sampled(report):
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


def _summary(findings: list[Finding], report: Report) -> str:
    """The first finding in full, and how many there are besides."""
    if not findings:
        where = "in a sample of the programs" if sampled(report) else "on this case"
        return f"nothing was found {where}, which certifies nothing"
    more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
    return findings[0].message + more
