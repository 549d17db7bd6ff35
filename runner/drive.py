"""The loop: drives one run from its spec to its last event, and resumes one from its log.

It owns the order of events, budgets, requests of people and the closing of a run. What to try is
the agent's business, when to stop the workflow's, how to measure the evaluator's, where events are
kept the log's: all four are protocols here.
"""

from __future__ import annotations

import hashlib
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kernels.catalog import Problem
from runner import agents, languages, units, workflows
from runner.events import (
    BudgetPayload,
    CandidatePayload,
    ControlPayload,
    EvaluationPayload,
    Event,
    HarnessErrorPayload,
    MessagePayload,
    RunPayload,
    RunStatus,
    Sink,
    ToolCallPayload,
)
from runner.results import Ceiling, Evaluation, Verdict
from runner.spec import EvaluationSpec, RunSpec, SpecError
from runner.state import RunState

TRACEBACK_CHARACTERS = 8_000
INLINE_CHARACTERS = 4_000  # of program output in an evaluation event; the whole is an artifact
HARNESS_ERRORS_IN_A_ROW = 3


class Interrupted(Exception):
    """The process must end now; the run is not over: another driver resumes it from its log."""


class EvaluationCancelled(Exception):
    """The evaluation was given up because a person asked the run to stop."""


class Evaluator(Protocol):
    def evaluate(self, number: int, spec: EvaluationSpec) -> Evaluation:
        """Block until candidate `number` is judged; adopt work already under way for it.

        A failing kernel is a result. Raises Interrupted, EvaluationCancelled after a stop request,
        or SpecError when the request itself cannot be met.
        """
        ...

    def ceilings(self, device: str) -> tuple[Ceiling, ...]:
        """The roofs of the device as far as they are known now, without waiting for anybody."""
        ...


class Log(Sink, Protocol):
    """A sink that can be read back. `emit` raises Interrupted when another driver took over."""

    def history(self) -> Iterable[Event]:
        """Every event of the run so far, in order."""
        ...

    def read(self, sha256: str) -> bytes:
        """An artifact of the run."""
        ...


class Control(Protocol):
    def poll(self) -> ControlPayload | None:
        """The next unhandled request of a person; raises Interrupted at shutdown."""
        ...


@dataclass(frozen=True)
class Proposal:
    """What an agent wants tried: a whole source file, and the idea in one sentence.

    `message` is what the agent says beside it; the idea when empty.
    """

    source: str
    language: str
    parent: int | None
    idea: str
    kernel: str = ""
    constants: dict[str, int] = field(default_factory=dict)
    message: str = ""


class Agent(Protocol):
    @property
    def name(self) -> str: ...

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        """The next candidate, or None when there is nothing left to try."""
        ...

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        """The closing words of a run that ends for `reason`."""
        ...


@dataclass(frozen=True)
class Ending:
    """How a workflow ended a run, with the reason in a plain sentence."""

    status: RunStatus
    reason: str


class Loop:
    """What a workflow works with: the state so far, and the acts that append to the log."""

    def __init__(
        self,
        spec: RunSpec,
        log: Log,
        evaluator: Evaluator,
        control: Control,
        clock: Callable[[], float],
    ) -> None:
        self.spec = spec
        self.state = RunState.from_events(log.history())
        self._log = log
        self._evaluator = evaluator
        self._control = control
        self._clock = clock
        self._opened = clock()
        reported_s = self.state.budget.wall_clock_s if self.state.budget else 0.0
        self._used_before_s = max(self.state.wall_clock_s, reported_s)

    @property
    def wall_clock_s(self) -> float:
        """Seconds of driving so far, those before a resumption included."""
        return self._used_before_s + self._clock() - self._opened

    def open(self) -> None:
        """Write the first event, or the event that says the run goes on."""
        if self.state.last_seq == 0:
            self._pass_to(RunStatus.running, _opening(self.spec), self.spec)
        elif not self.state.started:
            self._pass_to(RunStatus.running, _opening(self.spec))
        else:
            used = _count(self.state.evaluations_used, "evaluation")
            reason = f"resumed after event {self.state.last_seq}, {used} done"
            self._pass_to(RunStatus.running, reason)
        self._report_budget()

    def ending(self) -> Ending | None:
        """Why the run must end whatever its workflow wants: a person, a budget, or our defects."""
        stop = self._stop_request()
        if stop is not None:
            return Ending(RunStatus.stopped, f"stopped by {stop.by}")
        limits, state = self.spec.budgets, self.state
        if state.evaluations_used >= limits.evaluations:
            used = f"evaluation budget of {limits.evaluations} used"
            return Ending(RunStatus.finished, f"{used}; {describe_best(state)}")
        if self.wall_clock_s >= limits.wall_clock_s:
            count = _count(state.evaluations_used, "evaluation")
            used = f"wall clock of {units.seconds(limits.wall_clock_s)} used after {count}"
            return Ending(RunStatus.finished, f"{used}; {describe_best(state)}")
        last = list(state.evaluations.values())[-HARNESS_ERRORS_IN_A_ROW:]
        if len(last) == HARNESS_ERRORS_IN_A_ROW and all(
            evaluation.verdict is Verdict.harness_error for evaluation in last
        ):
            reason = f"{len(last)} evaluations in a row ended in a harness error: {last[-1].reason}"
            return Ending(RunStatus.failed, reason)
        return None

    def say(self, author: str, text: str) -> None:
        """Log a message, unless a driver that died just after it has logged the same already."""
        message = MessagePayload(author, text)
        if self.state.said != message:
            self._emit(message)

    def submit(self, author: str, proposal: Proposal) -> int:
        """Log a proposal as the next candidate; returns its number."""
        self.say(author, proposal.message or proposal.idea)
        number = len(self.state.candidates) + 1
        source = proposal.source.encode()
        candidate = CandidatePayload(
            number=number,
            parent=proposal.parent,
            language=proposal.language,
            idea=proposal.idea,
            author=author,
            source_sha256=hashlib.sha256(source).hexdigest(),
            kernel=proposal.kernel,
            constants=proposal.constants,
        )
        suffix = languages.get(proposal.language).SUFFIX
        self._emit(candidate, {f"c{number}{suffix}": source})
        return number

    def evaluate(self, number: int) -> None:
        """Have a candidate judged and log what was found and what is used up."""
        spec = self._evaluation_spec(number)
        call = f"evaluate-c{number}"
        if call not in self.state.calls:
            arguments = {"candidate": number, "device": spec.device, "case_set": spec.case_set}
            self._emit(ToolCallPayload(call, "evaluate", arguments))
        try:
            evaluation = self._evaluator.evaluate(number, spec)
        except EvaluationCancelled:
            if self._stop_request() is None:
                raise Interrupted(f"the evaluation of c{number} was cancelled") from None
            return
        short, artifacts = _shorten(evaluation)
        self._emit(EvaluationPayload(number, short), artifacts)
        self._report_budget()

    def close(self, ending: Ending) -> RunStatus:
        self._pass_to(ending.status, ending.reason)
        return ending.status

    def fail(self, error: Exception) -> None:
        """Log a defect of ours and end the run with it."""
        words = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
        self._emit(HarnessErrorPayload(self._step(), words, trace))
        self._emit(RunPayload(RunStatus.failed, f"a defect of the harness ended the run: {words}"))

    def _pass_to(self, status: RunStatus, reason: str, spec: RunSpec | None = None) -> None:
        known = self.state.ceilings
        roofs = () if known else self._evaluator.ceilings(self.spec.device)
        self._emit(RunPayload(status, reason, spec, roofs))

    def _emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> None:
        event = self._log.emit(payload, artifacts)
        if event.seq == self.state.last_seq + 1:
            self.state = self.state.apply(event)
        else:  # a person's note came in between
            self.state = RunState.from_events(self._log.history())

    def _stop_request(self) -> ControlPayload | None:
        while self.state.stop is None and (request := self._control.poll()) is not None:
            self._emit(request)
        return self.state.stop

    def _report_budget(self) -> None:
        reported = self.state.budget.evaluations if self.state.budget else 0
        if reported != self.state.evaluations_used:
            used = round(self.wall_clock_s, 3)
            self._emit(BudgetPayload(self.state.evaluations_used, used, self.spec.budgets))

    def _evaluation_spec(self, number: int) -> EvaluationSpec:
        candidate = self.state.candidates[number]
        return EvaluationSpec(
            problem=self.spec.problem,
            source=self._log.read(candidate.source_sha256).decode(),
            language=candidate.language,
            device=self.spec.device,
            case_set=self.spec.case_set,
        )

    def _step(self) -> str:
        pending = self.state.pending
        return f"evaluating c{pending[0]}" if pending else f"after event {self.state.last_seq}"


def drive(
    spec: RunSpec,
    log: Log,
    evaluator: Evaluator,
    control: Control,
    *,
    clock: Callable[[], float] = time.monotonic,
    agent: Agent | None = None,
) -> RunStatus:
    """Drive a run to its end and return how it ended; an ended run is left as it is.

    `agent` replaces the one that the spec names. Raises Interrupted with the log left resumable;
    a defect of ours is logged, ends the run as failed and is raised again.
    """
    loop = Loop(spec, log, evaluator, control, clock)
    if loop.state.status.ended:
        return loop.state.status
    try:
        loop.open()
        problem = spec.validate()
        agent = agent or agents.create(spec.agent)
        ending = workflows.get(spec.workflow).run(loop, agent, problem)
        loop.say(agent.name, agent.summarise(problem, loop.state, ending.reason))
        return loop.close(ending)
    except Interrupted:
        raise
    except SpecError as error:
        return loop.close(Ending(RunStatus.failed, str(error)))
    except Exception as error:
        loop.fail(error)
        raise


def describe_best(state: RunState) -> str:
    """`best c9: 1.62× over torch (95% 1.60–1.64)`, or that nothing passed."""
    if state.best is None:
        return "no candidate passed with a measured speedup"
    return f"best {describe(state, state.best)}"


def describe(state: RunState, number: int) -> str:
    """`c9: 1.62× over torch (95% 1.60–1.64)` of a candidate that was measured."""
    evaluation = state.evaluations[number]
    baselines = dict.fromkeys(case.timing.baseline for case in evaluation.scored if case.timing)
    over = " and ".join(baselines)
    ratio, ci95 = units.speedup(evaluation.speedup), units.interval(evaluation.ci95)
    return f"c{number}: {ratio} over {over} (95% {ci95})"


def _opening(spec: RunSpec) -> str:
    goal = "" if spec.goal_speedup is None else f"goal {spec.goal_speedup:g}×, "
    evaluations = _count(spec.budgets.evaluations, "evaluation")
    limit = f"at most {evaluations} and {units.seconds(spec.budgets.wall_clock_s)}"
    return f"{spec.problem} on {spec.device} with the {spec.agent} agent: {goal}{limit}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shorten(evaluation: Evaluation) -> tuple[Evaluation, dict[str, bytes]]:
    """Move long program output out of the event: its tail stays, the whole becomes an artifact."""
    artifacts, tails = {}, {}
    for name in ("output", "compile_output"):
        text: str = getattr(evaluation, name)
        if len(text) > INLINE_CHARACTERS:
            artifacts[f"{name}.txt"] = text.encode("utf-8", "replace")
            tails[name] = text[-INLINE_CHARACTERS:]
    return replace(evaluation, **tails), artifacts  # type: ignore[arg-type]
