"""Stand-ins at the loop's own protocols: an evaluator, requests of people, a clock.

They return real results; only the measuring is made up.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from runner import agents
from runner.agents import Agent
from runner.agents.scripted import ScriptedConversant
from runner.conversation import Call, Turn
from runner.drive import Create
from runner.events import ControlAction, ControlPayload, Event, Usage
from runner.log import MemoryLog
from runner.loop import Interrupted
from runner.results import (
    CaseResult,
    Ceiling,
    DeviceInfo,
    Evaluation,
    Outcome,
    Timing,
    Verdict,
)
from runner.spec import EvaluationSpec

RUN = "3f2b8c1e-5a4d-4e6f-9b7a-0c1d2e3f4a5b"
HOST = DeviceInfo("host", "host", "Test CPU", "host-test", {"cores": "2"})
_CONSTANT = re.compile(r"^constexpr int (\w+) = (-?\d+);", re.MULTILINE)


def make_evaluation(
    speedup: float | None,
    verdict: Verdict = Verdict.passed,
    *,
    reason: str = "",
    source: str = "",
    output: str = "",
    cases: Iterable[tuple[str, float]] = (),
    spread: float = 0.01,
) -> Evaluation:
    """An evaluation whose cases have these speedups (one case by default), each ± `spread`."""
    scored = list(cases) or ([("4096x2048-fp32", speedup)] if speedup is not None else [])
    results = tuple(
        CaseResult(name, verdict, timing=_timing(ratio, spread)) for name, ratio in scored
    )
    if verdict is not Verdict.passed:
        results = (CaseResult("4096x2048-fp32", verdict, reason),)
    return Evaluation(
        verdict=verdict,
        reason=reason,
        cases=results,
        integrity=(),
        timer="fake",
        device=HOST,
        versions={"python": "3.11"},
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        isolation="none: fake",
        output=output,
    )


def _timing(ratio: float, spread: float) -> Timing:
    us = 1000.0 / ratio
    low, high = ratio * (1 - spread), ratio * (1 + spread)
    outcome = (
        Outcome.faster if low > 1 else Outcome.slower if high < 1 else Outcome.indistinguishable
    )
    return Timing("torch", us, us, us, 1000.0, 1000.0, 1000.0, ratio, (low, high), outcome, 30)


ROOFS = (Ceiling("DRAM copy", "B/s", 4e10, "measured", "a copy of 1 GiB"),)


class FakeEvaluator:
    """Judges by the source alone, like a device whose measurements never vary."""

    def __init__(self, judge: Callable[[str], Evaluation]) -> None:
        self.judge = judge
        self.asked: list[int] = []
        self.specs: list[EvaluationSpec] = []

    def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
        self.asked.append(number)
        self.specs.append(spec)
        return _scoped(self.judge(spec.source), spec)

    def ceilings(self, device: str) -> tuple[Ceiling, ...]:
        return ROOFS


def _scoped(found: Evaluation, spec: EvaluationSpec) -> Evaluation:
    """What is left of an evaluation that covers some cases, or times none."""
    cases = found.cases
    if spec.cases:
        cases = tuple(replace(case, case=name) for name in spec.cases for case in cases[:1])
    if not spec.timed:
        cases = tuple(replace(case, timing=None) for case in cases)
    return replace(found, cases=cases)


def by_first_line(source: str) -> Evaluation:
    """`// 1.5` passes with that speedup, `// crashed` fails so, `// defect` is our own error."""
    word = source.splitlines()[0].removeprefix("// ")
    if word == "defect":
        raise RuntimeError("the referee lost its pipe")
    if word in Verdict.__members__:
        return make_evaluation(None, Verdict(word), reason=f"it {word}", source=source)
    return make_evaluation(float(word), source=source)


def by_constants(source: str) -> Evaluation:
    """A landscape over the tuning constants: some pay, some fail, the order is fixed."""
    constants = {name: int(value) for name, value in _CONSTANT.findall(source)}
    digest = hashlib.sha256(str(sorted(constants.items())).encode()).digest()
    if digest[0] < 40:
        return make_evaluation(None, Verdict.wrong_values, reason="error 0.3", source=source)
    gain = sum(1 for value in constants.values() if value > 1) * 0.1
    return make_evaluation(0.8 + gain + digest[1] / 2550, source=source)


class Requests:
    """Gives one answer per poll, then None: a request, or Interrupted where None stands first."""

    def __init__(self, *answers: ControlPayload | type[Interrupted] | None) -> None:
        self._answers = iter(answers)

    def poll(self, after: int) -> ControlPayload | None:
        answer = next(self._answers, None)
        if answer is Interrupted:
            raise Interrupted("the worker shuts down")
        assert answer is None or isinstance(answer, ControlPayload)
        return answer

    def pause(self) -> None:
        """The next answer comes at once."""


def only(agent: Agent | None) -> Create:
    """Creates this agent whatever is asked for; without one, what is asked for."""
    return agents.create if agent is None else lambda spec: agent


def in_order(*players: Agent) -> Create:
    """Creates these agents one after the other, as the players of one drive."""
    waiting = iter(players)
    return lambda spec: next(waiting)


def stop_by(person: str) -> ControlPayload:
    return ControlPayload(ControlAction.stop, person)


class Asked:
    """Requests of people as the web and the command line keep them: numbered, kept, found again.

    Each is there from the given poll on, counted from 1.
    """

    def __init__(self, *requests: tuple[int, ControlPayload]) -> None:
        self._requests = requests
        self._polls = 0

    def poll(self, after: int) -> ControlPayload | None:
        self._polls += 1
        for number, (first, payload) in enumerate(self._requests, start=1):
            if number > after and self._polls >= first:
                return replace(payload, request=number)
        return None

    def pause(self) -> None:
        raise Interrupted("nobody waits here for a person")


class Seconds:
    """A clock that says the next second each time it is read; also stamps events."""

    def __init__(self, step: float = 1.0) -> None:
        self._count = itertools.count()
        self._step = step

    def __call__(self) -> float:
        return next(self._count) * self._step

    def stamp(self) -> str:
        moment = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self())
        return moment.isoformat(timespec="microseconds")


def turn(*calls: tuple[str, dict[str, Any]], text: str = "", **more: Any) -> Turn:
    """A turn that calls these tools, in this order."""
    named = tuple(Call(f"toolu_{i}", tool, arguments) for i, (tool, arguments) in enumerate(calls))
    return Turn(text, named, **more)


def write(first_line: str, idea: str = "An idea.", **more: Any) -> tuple[str, dict[str, Any]]:
    """A call that writes a candidate whose first line says how `by_first_line` judges it."""
    return "write_candidate", {"source": f"// {first_line}\n// {idea}\n", "idea": idea, **more}


def bench(candidate: int, case: str = "") -> tuple[str, dict[str, Any]]:
    return "benchmark", {"candidate": candidate, "case": case} if case else {"candidate": candidate}


def finish(summary: str = "That is all.") -> tuple[str, dict[str, Any]]:
    return "finish", {"summary": summary}


def spending(tokens: int, dollars: float | None = 0.01) -> dict[str, Usage]:
    """What a turn cost, to be given to `turn`."""
    return {"usage": Usage("a-model", tokens - 100, 100, dollars=dollars)}


def talker(*turns: Turn, closing: str = "", name: str = "scripted") -> ScriptedConversant:
    return ScriptedConversant(turns, Turn(closing), name)


def make_log(events: Iterable[Event] = (), earlier: MemoryLog | None = None) -> MemoryLog:
    """A log that may start with events of an earlier one, whose artifacts it then shares."""
    return MemoryLog(RUN, list(events), earlier.artifacts if earlier else {}, Seconds().stamp)
