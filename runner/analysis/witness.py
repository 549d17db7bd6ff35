"""Has a child capture a candidate's kernels, and decodes what it wrote down.

The parent's side of the dialogue. The child shares its process with the candidate, so every word
is checked; a candidate that ends the dialogue is blamed with a finding.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from runner import languages
from runner.analysis import station
from runner.analysis.captured import Captured
from runner.analysis.findings import AnalysisVerdict, Blamed, Finding, FindingKind, Severity, Source
from runner.analysis.request import Request
from runner.evaluate.buffers import set_bytes
from runner.evaluate.channel import BadMessage
from runner.evaluate.devices import cpu_count
from runner.evaluate.keeper import (
    Child,
    ChildEnded,
    DeadlinePassed,
    Ending,
    Watch,
    ZygoteDied,
    exit_words,
)
from runner.wire import WireError, from_json

REPORT_BYTES = 256 << 20
LAST_WORDS = 200  # characters
OWN_TENSORS = 8  # what a candidate may allocate beside the inputs, in sets of tensors


@dataclass(frozen=True)
class Witness:
    """What the child wrote down, what it printed, and the folder it worked in."""

    captured: Captured
    output: str
    folder: str


def witnessed(request: Request) -> Witness:
    """Have a child capture the candidate. Raises Blamed.

    A station that dies under a candidate may be an accident; twice under one is no accident.
    """
    for attempt in range(2):
        try:
            return _capture(request)
        except ZygoteDied as died:
            if attempt:
                words = f"twice it took down the process that had started it ({died})"
                raise _blamed(request, FindingKind.run_error, words) from died
    raise AssertionError("unreachable")


def _capture(request: Request) -> Witness:
    with station.borrowed(request.cancel) as zygote, zygote.folder.subfolder() as folder:
        compiled = languages.get("triton").compile(
            request.spec.source, folder, request.spec.limits, cancel=request.cancel
        )
        if compiled.artifact is None:
            place = re.match(r"[^:]+:(\d+): ", compiled.reason)
            line = int(place[1]) if place else None
            words = compiled.reason[place.end() :] if place else compiled.reason
            raise _blamed(request, FindingKind.compile_error, words, line)
        report = os.memfd_create("capture")
        try:
            child = zygote.fork(folder, _rlimits(request), request.spec.limits.output_bytes)
            endings: list[Ending] = []
            try:
                with _ended(child, endings):
                    _ask(request, child, str(compiled.artifact), report)
            except ChildEnded as ended:
                raise _blamed_for_ending(request, ended.status, endings[0].output) from None
            return Witness(_decoded(request, report), endings[0].output, str(folder))
        finally:
            os.close(report)


@contextmanager
def _ended(child: Child, endings: list[Ending]) -> Iterator[None]:
    """The child is gone when this is left; how it ended is in the list then."""
    try:
        yield
    finally:
        endings.append(child.end())


def _ask(request: Request, child: Child, artifact: str, report: int) -> None:
    """Have the child capture. Raises Blamed when it does not answer, ChildEnded when it cannot."""
    inputs = [
        [list(request.case.shape(each)), request.case.dtype_of(each)]
        for each in request.problem.inputs
    ]
    message = {"artifact": artifact, "target": request.target.name, "inputs": inputs}
    watch = Watch(time.monotonic() + request.spec.deadline_s, request.cancel)
    try:
        child.ask(message, watch, [report])
    except DeadlinePassed:
        words = f"it did not finish within {request.spec.deadline_s:g} s"
        verdict = AnalysisVerdict.incomplete
        raise _blamed(request, FindingKind.deadline_passed, words, verdict=verdict) from None
    except BadMessage as error:
        raise _blamed(request, FindingKind.run_error, f"forged words: {error}") from None


def _blamed_for_ending(request: Request, status: int, output: str) -> Blamed:
    """With the last words of the process, where it had any."""
    if status == -signal.SIGXCPU:
        kind, words = FindingKind.deadline_passed, "it used up its processor time"
        return _blamed(request, kind, words, verdict=AnalysisVerdict.incomplete)
    last = output.strip().rpartition("\n")[2][:LAST_WORDS]
    words = f"its process ended: {exit_words(status)}{f'; it said: {last}' if last else ''}"
    return _blamed(request, FindingKind.run_error, words)


def _rlimits(request: Request) -> dict[str, Any]:
    tensors = OWN_TENSORS * set_bytes(request.problem, request.case)
    return {
        "cpu_s": int(request.spec.deadline_s * cpu_count()) + 10,
        "address_space_bytes": request.spec.limits.memory_bytes + tensors,
    }


def _decoded(request: Request, report: int) -> Captured:
    """Strictly: the candidate shares a process with who wrote it."""
    size = os.fstat(report).st_size
    if size > REPORT_BYTES:
        raise _blamed(request, FindingKind.run_error, f"a report of {size} bytes")
    try:
        return from_json(Captured, json.loads(os.pread(report, size, 0)))
    except (WireError, ValueError, RecursionError) as error:
        raise _blamed(request, FindingKind.run_error, f"a forged report: {error}") from None


def _blamed(
    request: Request,
    kind: FindingKind,
    message: str,
    line: int | None = None,
    verdict: AnalysisVerdict = AnalysisVerdict.error,
) -> Blamed:
    source = None if line is None else Source(request.spec.file, line)
    return Blamed(verdict, Finding(kind, Severity.error, message, source))
