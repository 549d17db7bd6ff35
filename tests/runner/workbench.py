"""A run under way whose tools can be called one by one; measuring and analysing are made up."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from runner import tools
from runner.analysis.analyze import AnalysisSpec, Report
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    Source,
)
from runner.analysis.simulate import SimulationSpec
from runner.conversation import Call
from runner.events import ControlPayload
from runner.log import MemoryLog
from runner.loop import Answer, Entry, EvaluationCancelled, Examiner, Library, Loop
from runner.results import Evaluation
from runner.spec import EvaluationSpec, RunSpec
from tests.runner.fakes import FakeEvaluator, Requests, Seconds, by_first_line, make_log

OCCUPANCY = {"warps": 32, "fraction": 0.5, "limiter": "registers"}
SPILL = Finding(
    FindingKind.register_spill,
    Severity.warning,
    "8 bytes are spilled on every trip of the loop",
    Source("candidate.py", 2),
    evidence={"bytes": 8, "steps": ["load x", "store x"]},
)


def kernel(name: str = "rows", registers: int = 64, spilled: int = 0) -> dict[str, Any]:
    """What one kernel uses, as an analysis keeps it."""
    return {
        "kernel": name,
        "registers": registers,
        "spill_store_bytes": spilled,
        "spill_load_bytes": 0,
        "static_shared_bytes": 0,
        "dynamic_shared_bytes": 16384,
        "occupancy": OCCUPANCY,
        "waves": [{"waves": 1.5}],
    }


def review(*findings: Finding, kernels: tuple[dict[str, Any], ...] = ()) -> Analysis:
    """An analysis with these findings; clean without any."""
    verdict = AnalysisVerdict.review if findings else AnalysisVerdict.clean
    reason = findings[0].message if findings else ""
    resources = {"kernels": list(kernels)}
    return Analysis(verdict, reason, findings, ("one call of run, inputs of zeros",), resources)


@dataclass
class FakeExaminer:
    """Finds the same in every candidate, or raises."""

    found: Analysis | Exception = field(default_factory=review)
    asked: list[AnalysisSpec | SimulationSpec] = field(default_factory=list)

    def analyze(self, spec: AnalysisSpec) -> Report:
        return Report(self._answer(spec))

    def simulate(self, spec: SimulationSpec) -> Analysis:
        return self._answer(spec)

    def _answer(self, spec: AnalysisSpec | SimulationSpec) -> Analysis:
        self.asked.append(spec)
        if isinstance(self.found, Exception):
            raise self.found
        return self.found


ENTRY = Entry("7", "softmax", "Unrolling by four pays.", "fp32 on one CPU", "stale")


class Shelf:
    """A library of one entry."""

    def search(self, query: str, limit: int) -> tuple[Entry, ...]:
        return (ENTRY,) if query.lower() in ENTRY.claim.lower() else ()

    def read(self, slug: str) -> str | None:
        return "Unrolling by four pays, since …" if slug == ENTRY.slug else None


class Workbench:
    """`call` runs a tool as a turn would, and logs call and answer."""

    def __init__(
        self,
        *,
        language: str = "cpp",
        judge: Callable[[str], Evaluation] = by_first_line,
        examiner: Examiner | None = None,
        library: Library | None = None,
        control: ControlPayload | None = None,
        log: MemoryLog | None = None,
        device: str = "host",
        case_set: str = "host",
    ) -> None:
        self.log = log or make_log()
        self.evaluator = FakeEvaluator(judge)
        self._spec = RunSpec("softmax", device, case_set, language)
        self._examiner, self._library, self._control = examiner, library, control
        self._names = self._numbered()
        self.loop: Loop
        self.restart()
        self.loop.open()

    def restart(self) -> None:
        """Another driver takes over: all that it knows is the log."""
        control = Requests(*([self._control] if self._control else []))
        self.loop = Loop(
            self._spec,
            self.log,
            self.evaluator,
            control,
            clock=Seconds(0.001),
            examiner=self._examiner,
            library=self._library,
        )

    def call(self, tool: str, **arguments: Any) -> Answer:
        """What the tool answers; raises AssertionError if it is an error."""
        answer = self.raw(Call("model-1", tool, arguments))
        assert answer.ok, answer.text
        return answer

    def refused(self, tool: str, **arguments: Any) -> dict[str, str]:
        """The structured error that the call ends with."""
        return self.fault(self.raw(Call("model-1", tool, arguments)))

    @staticmethod
    def fault(answer: Answer) -> dict[str, str]:
        assert not answer.ok, answer.text
        error: dict[str, str] = json.loads(answer.text)["error"]
        assert set(error) == {"field", "problem", "remedy"}
        assert all(error.values())
        return error

    def raw(self, call: Call, name: str = "") -> Answer:
        """Run a call, under a name of its own unless one is given, and log it."""
        name = name or next(self._names)
        self.loop.begin_call(name, call)
        answer = tools.call(tools.Work(self.loop, "claude", name), call, tools.names())
        self.loop.end_call(name, answer)
        return answer

    def raw_answer(self, tool: str, **arguments: Any) -> Answer:
        """What the tool answers, error or not."""
        return self.raw(Call("model-1", tool, arguments))

    def write(self, *first_lines: str) -> None:
        """Write candidates, each of which begins with such a line."""
        for line in first_lines:
            self.call("write_candidate", source=f"// {line}\nint x;\n", idea=f"Idea {line}.")

    def events(self, kind: str) -> int:
        """How many events of a type the log holds."""
        return sum(event.type.value == kind for event in self.log.events)

    @staticmethod
    def _numbered() -> Iterator[str]:
        number = 0
        while True:
            number += 1
            yield f"e{number}.1"


class CancelledEvaluator(FakeEvaluator):
    """Gives every evaluation up, as after a stop request."""

    def __init__(self) -> None:
        super().__init__(by_first_line)

    def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
        raise EvaluationCancelled
