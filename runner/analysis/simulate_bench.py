"""The forks of one simulation, and the questions asked of them: draw, run, judge.

Owns shared memory, deadlines and limits. What the answers mean is `simulate`'s business.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.analysis.findings import AnalysisVerdict, Blamed, Finding, FindingKind, Severity
from runner.analysis.simulate_report import Report
from runner.analysis.simulate_request import Request
from runner.evaluate.buffers import Layout, set_bytes
from runner.evaluate.channel import BadMessage, Message
from runner.evaluate.devices import cpu_count
from runner.evaluate.host_memory import HostMemory
from runner.evaluate.keeper import Child, ChildEnded, DeadlinePassed, Watch, Zygote, exit_words
from runner.wire import WireError, from_json, to_json

JUDGE_S = 120.0  # for one answer of ours
REPORT_BYTES = 4 << 20
OWN_TENSORS = 16  # what a candidate may allocate, and its shadow, in sets of tensors


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
        zygote: Zygote,
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
        outputs = [region for region in self.layout.regions if region.output]
        if len(report.stored_at) != len(outputs):
            raise _forged(f"{len(report.stored_at)} outputs")
        partial = sampled(report)
        if partial and len(report.launches) > 1:
            return Outcome(report)
        answer = self._ours({"do": "judge", "sampled": partial})
        judged = tuple(answer["outputs"])
        return Outcome(report, tuple(answer["changed"]), judged, self._writers(judged, lines))

    def _writers(self, judged: Sequence[Message], lines: bytes) -> tuple[tuple[int, int], ...]:
        """Of each output's first wrong element, who wrote it."""
        outputs = [region for region in self.layout.regions if region.output]
        writers, start = [], 0
        for region, answer in zip(outputs, judged, strict=True):
            elements = math.prod(region.shape)
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
            expected = 8 * sum(math.prod(r.shape) for r in self.layout.regions if r.output)
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
        raise _forged(str(error)) from None


def _forged(words: str) -> Blamed:
    finding = Finding(FindingKind.run_error, Severity.error, f"a forged report: {words}")
    return Blamed(AnalysisVerdict.error, finding)


def sampled(report: Report) -> bool:
    return any(each.simulated < each.programs for each in report.launches)
