"""Loop: what a run is worked on with. The state so far, and the acts that append to its log.

It owns the order of events, budgets and the requests of people. What to try is the agent's
business, when to stop the workflow's, how to measure the evaluator's, where events are kept the
log's: these are protocols here.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from kernels.catalog import Problem, load_problem
from runner import languages, units
from runner.conversation import DETAILS, TURN, Call, Conversation, Turn, call_name
from runner.events import (
    AnalysisPayload,
    BudgetPayload,
    CandidatePayload,
    ControlAction,
    ControlPayload,
    EvaluationPayload,
    Event,
    HarnessErrorPayload,
    MessageKind,
    MessagePayload,
    NotePayload,
    ProfilePayload,
    RunPayload,
    RunStatus,
    Sink,
    ToolCallPayload,
    ToolResultPayload,
    Usage,
)
from runner.results import Ceiling, Evaluation, Verdict
from runner.spec import EvaluationSpec, RunSpec
from runner.state import AnalysisKey, RunState
from runner.wire import canonical, from_json, to_json

if TYPE_CHECKING:
    from runner.analysis.analyze import AnalysisSpec, Report
    from runner.analysis.findings import Analysis
    from runner.analysis.simulate import SimulationSpec

HARNESS = "warpdeck"  # the author of what the harness says
TRACEBACK_CHARACTERS = 8_000
INLINE_CHARACTERS = 4_000  # of program output in an evaluation event; the whole is an artifact
ARGUMENT_CHARACTERS = 400  # of one argument in a tool call event; the turn has it whole
HARNESS_ERRORS_IN_A_ROW = 3
CLOSING_TOKENS = 8_000  # kept back for the closing words, which are asked for in a fresh context
HEED_S = 0.25  # how often a waiting agent looks for requests


class Interrupted(Exception):
    """The process must end now; the run is not over: another driver resumes it from its log."""


class EvaluationCancelled(Exception):
    """The evaluation was given up because a person asked the run to stop."""


class TurnCut(Exception):
    """An agent's turn was given up, by a request or a budget; `usage` is what it cost so far."""

    def __init__(self, reason: str, usage: Usage | None = None) -> None:
        super().__init__(reason)
        self.usage = usage


class Evaluator(Protocol):
    def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
        """Block until candidate `number` is judged; adopt work already under way for it.

        A failing kernel is a result. Raises Interrupted, EvaluationCancelled after a stop request,
        or SpecError when the request itself cannot be met.
        """
        ...

    def ceilings(self, device: str) -> tuple[Ceiling, ...]:
        """The roofs of the device as far as they are known now, without waiting for anybody."""
        ...


class Examiner(Protocol):
    """Analysis and simulation without a device, on this host; failing kernels are results."""

    def analyze(self, spec: AnalysisSpec) -> Report: ...

    def simulate(self, spec: SimulationSpec) -> Analysis: ...


@dataclass(frozen=True)
class Entry:
    """A knowledge entry as a search lists it; `slug` is what `Library.read` takes.

    `caution` says why it may not hold any more; empty where nothing speaks against it.
    """

    slug: str
    title: str
    claim: str
    scope: str = ""
    caution: str = ""


class Library(Protocol):
    """The knowledge base as agents see it: published entries alone."""

    def search(self, query: str, limit: int) -> tuple[Entry, ...]: ...

    def read(self, slug: str) -> str | None:
        """The whole entry as text, or None if there is none of that name."""
        ...


class NoLibrary:
    """Where there is no knowledge base, as on a machine with no web."""

    def search(self, query: str, limit: int) -> tuple[Entry, ...]:
        return ()

    def read(self, slug: str) -> str | None:
        return None


class Log(Sink, Protocol):
    """A sink that can be read back. `emit` raises Interrupted when another driver took over."""

    def history(self) -> Iterable[Event]:
        """Every event of the run so far, in order."""
        ...

    def read(self, sha256: str) -> bytes:
        """An artifact of the run."""
        ...

    def hint(self, text: str) -> None:
        """What the agent has said so far in the turn under way; may be lost, is never kept."""
        ...


class Control(Protocol):
    def poll(self, after: int) -> ControlPayload | None:
        """The first request of a person whose number is above `after`; Interrupted at shutdown."""
        ...

    def pause(self) -> None:
        """Wait for the next request, or raise Interrupted to let another driver wait for it."""
        ...


@dataclass(frozen=True)
class Proposal:
    """What is to be tried: a whole source file, and the idea in one sentence.

    `message` is what an agent that uses no tools says beside it; the idea when empty.
    """

    source: str
    language: str
    parent: int | None
    idea: str
    kernel: str = ""
    constants: dict[str, int] = field(default_factory=dict)
    message: str = ""


@dataclass(frozen=True)
class Ending:
    """How a workflow ended a run, with the reason in a plain sentence."""

    status: RunStatus
    reason: str


@dataclass(frozen=True)
class Answer:
    """What a tool tells an agent: a summary first; `details` on request. Not `ok`: an error."""

    text: str
    details: str = ""
    ok: bool = True


CUT_SHORT = Answer("given up: a person stopped the run", ok=False)


class Loop:
    """One run under way. `closing_s` is kept back of the wall clock for the closing words."""

    def __init__(
        self,
        spec: RunSpec,
        log: Log,
        evaluator: Evaluator,
        control: Control,
        *,
        clock: Callable[[], float] = time.monotonic,
        examiner: Examiner | None = None,
        library: Library | None = None,
    ) -> None:
        self.spec = spec
        self.examiner = examiner
        self.library: Library = library or NoLibrary()
        self.closing_s = 0.0
        self._ends_s: float | None = None
        self._log = log
        self._evaluator = evaluator
        self._control = control
        self._clock = clock
        self._opened = clock()
        self._heeded = 0.0
        self.state: RunState
        self.conversation: Conversation
        self._read_log()
        reported_s = self.state.budget.wall_clock_s if self.state.budget else 0.0
        self._used_before_s = max(self.state.wall_clock_s, reported_s)

    # What is known

    @functools.cached_property
    def problem(self) -> Problem:
        return load_problem(self.spec.problem)

    @property
    def wall_clock_s(self) -> float:
        """Seconds of driving so far, those before a resumption included."""
        return self._used_before_s + self._clock() - self._opened

    @property
    def seconds_left(self) -> float:
        """Until the wall clock is used, less what is kept for the closing words."""
        if self._ends_s is None:
            return self.state.limits.wall_clock_s - self.closing_s - self.wall_clock_s
        return self._ends_s - self.wall_clock_s

    @property
    def tokens_left(self) -> int | None:
        """Of the budget, less what is kept for the closing words; None without a limit."""
        limit, kept = self.state.limits.tokens, CLOSING_TOKENS if self._ends_s is None else 0
        return None if limit is None else limit - kept - self.state.tokens

    def read(self, sha256: str) -> bytes:
        """An artifact of the run."""
        return self._log.read(sha256)

    def source(self, number: int) -> str:
        """A candidate's source file."""
        return self.read(self.state.candidates[number].source_sha256).decode()

    def printed(self, number: int, scope: str = "") -> str:
        """All that compiler and candidate printed in an evaluation that was made."""
        found = self.state.evaluation(number, scope)
        assert found is not None, f"c{number} has no evaluation of scope {scope!r}"
        kept = {ref.name: ref.sha256 for ref in self.state.printed.get((number, scope), ())}
        texts = {"compile_output": found.compile_output, "output": found.output}
        for name in texts:
            if f"{name}.txt" in kept:
                texts[name] = self.read(kept[f"{name}.txt"]).decode("utf-8", "replace")
        return "\n".join(text for text in texts.values() if text.strip())

    def turn(self, sha256: str) -> Turn:
        """A turn of an agent, as `turn.json` keeps it."""
        return from_json(Turn, json.loads(self.read(sha256)))

    @property
    def next_call(self) -> tuple[str, Call] | None:
        """The first call of the last turn that has no result yet, and its name in the log."""
        last = self.conversation.last_turn
        if last is None:
            return None
        answered = self.conversation.answered
        for index, call in enumerate(self.turn(last.sha256).calls):
            if (name := call_name(last.seq, index)) not in answered:
                return name, call
        return None

    @property
    def call_under_way(self) -> bool:
        """True where a driver died within a call: it is answered before anything else is done."""
        following = self.next_call
        return following is not None and following[0] in self.conversation.tools

    # Lifecycle

    def open(self) -> None:
        """Write the first event, or the event that says the run goes on."""
        if self.state.last_seq == 0:
            self._pass_to(RunStatus.running, _opening(self.spec), self.spec)
        elif not self.state.started:
            self._pass_to(RunStatus.running, _opening(self.spec))
        else:
            used = count(self.state.evaluations_used, "evaluation")
            reason = f"resumed after event {self.state.last_seq}, {used} done"
            self._pass_to(RunStatus.running, reason)
        self.report_budget()

    def attend(self) -> None:
        """Take up what people ask for. Returns once the run is not paused; raises Interrupted."""
        self._take_requests()
        while self.state.paused and self.state.stop is None:
            if self.state.status is not RunStatus.paused:
                self._pass_to(RunStatus.paused, f"paused by {self._asked_by}")
            began = self._clock()
            self._control.pause()
            self._opened += self._clock() - began  # a pause uses nobody's wall clock
            self._take_requests()
        if self.state.status is RunStatus.paused:
            self._pass_to(RunStatus.running, f"resumed by {self._asked_by}")

    def heed(self, usage: Usage | None = None) -> None:
        """To be called often in a long turn: raises TurnCut if a person or a budget ends it."""
        now = self._clock()
        if now - self._heeded < HEED_S:
            return
        self._heeded = now
        after = self.state.request
        while (request := self._control.poll(after)) is not None:
            if request.action in (ControlAction.stop, ControlAction.pause):
                raise TurnCut(f"{request.by} asked for a {request.action}", usage)
            after = max(after + 1, request.request)  # others take effect at the next step
        if self.seconds_left <= 0:
            whose = "the wall clock" if self._ends_s is None else "the time kept for them"
            raise TurnCut(f"{whose} is used", usage)

    def ending(self) -> Ending | None:
        """Why the run must end whatever its workflow wants: a person, a budget, or our defects."""
        self.attend()
        if self.state.stop is not None:
            return Ending(RunStatus.stopped, f"stopped by {self.state.stop.by}")
        if self.call_under_way:
            return None
        used = self._used_up()
        if used is not None:
            return Ending(RunStatus.finished, f"{used}; {describe_best(self.state)}")
        last = list(self.state.evaluations.values())[-HARNESS_ERRORS_IN_A_ROW:]
        if len(last) == HARNESS_ERRORS_IN_A_ROW and all(
            evaluation.verdict is Verdict.harness_error for evaluation in last
        ):
            reason = f"{len(last)} evaluations in a row ended in a harness error: {last[-1].reason}"
            return Ending(RunStatus.failed, reason)
        return None

    def start_closing(self) -> None:
        """From now on the time that was kept back is there, whatever the last step took of it."""
        self._ends_s = self.wall_clock_s + self.closing_s

    def close(self, ending: Ending) -> RunStatus:
        self._pass_to(ending.status, ending.reason)
        return ending.status

    def fail(self, error: Exception) -> None:
        """Log a defect of ours and end the run with it."""
        words = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))[-TRACEBACK_CHARACTERS:]
        self._emit(HarnessErrorPayload(self._step(), words, trace))
        self._emit(RunPayload(RunStatus.failed, f"a defect of the harness ended the run: {words}"))

    # What is said

    def say(self, author: str, text: str) -> None:
        """Log a message, unless a driver that died just after it has logged the same already."""
        message = MessagePayload(author, text)
        if self.state.said != message:
            self._emit(message)

    def brief(self, agent: str, stage: str, ordinal: int, text: str) -> None:
        """Open a fresh context for an agent."""
        kind = MessageKind.brief
        self._emit(MessagePayload(agent, text, kind, stage=stage, ordinal=ordinal))

    def take_turn(self, agent: str, turn: Turn) -> None:
        """Log a whole turn of an agent; its calls are run from what was logged."""
        message = MessagePayload(agent, _storable(turn.text), usage=turn.usage)
        content = canonical(to_json(turn)).encode("utf-8", "backslashreplace")  # JSON's own escape
        self._emit(message, {TURN: content})
        self.report_budget()

    def nudge(self, text: str) -> None:
        """Tell the agent something; it reads it before its next turn."""
        self._emit(MessagePayload(HARNESS, text, MessageKind.nudge))

    def notice(self, text: str, usage: Usage | None = None) -> None:
        """Tell people something; no agent reads it."""
        self._emit(MessagePayload(HARNESS, text, MessageKind.notice, usage=usage))

    def summarise(self, author: str, text: str, usage: Usage | None = None) -> None:
        """Log the closing words, once."""
        if self.state.summary is None:
            self._emit(MessagePayload(author, text, MessageKind.summary, usage=usage))
            self.report_budget()

    def hint(self, text: str) -> None:
        """Show the text of the turn so far to whoever watches; it is not kept."""
        self._log.hint(text)

    # What is done

    def submit(self, author: str, proposal: Proposal, call: str = "") -> int:
        """Log a proposal as the next candidate; returns its number.

        A proposal that a tool call makes is logged once, however often the call is repeated.
        """
        if call and call in self.state.made_by:
            return self.state.made_by[call]
        if not call:
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
            call=call,
        )
        suffix = languages.get(proposal.language).SUFFIX
        self._emit(candidate, {f"c{number}{suffix}": source})
        return number

    def evaluate(self, number: int, scope: str = "") -> Evaluation | None:
        """Have a candidate judged and log what was found; None if a person stopped it.

        `scope` is empty for a whole evaluation, `check` for one without timing, `case NAME` for one
        case. What has been evaluated in that scope is not evaluated again.
        """
        known = self.state.evaluation(number, scope)
        if known is not None:
            return known
        spec = self._evaluation_spec(number, scope)
        try:
            evaluation = self._evaluator.evaluate(number, spec, scope)
        except EvaluationCancelled:
            self._take_requests()
            if self.state.stop is None:
                raise Interrupted(f"the evaluation of c{number} was cancelled") from None
            return None
        short, artifacts = _shorten(evaluation)
        self._emit(EvaluationPayload(number, short, scope), artifacts)
        self.report_budget()
        return short

    def announce_evaluation(self, number: int) -> None:
        """The tool call that an agent without tools would have made, for whoever reads the log."""
        call = f"evaluate-c{number}"
        if call not in self.state.calls:
            spec = self.spec
            arguments = {"candidate": number, "device": spec.device, "case_set": spec.case_set}
            self._emit(ToolCallPayload(call, "evaluate", arguments))

    def record_analysis(
        self, payload: AnalysisPayload, artifacts: Mapping[str, bytes] | None = None
    ) -> None:
        """Log an analysis, unless the same one is there."""
        if AnalysisKey.of(payload) not in self.state.analyses:
            self._emit(payload, artifacts)

    def record_profile(self, payload: ProfilePayload) -> None:
        """Log what a profiler found, or why there was none; once for each candidate."""
        if payload.candidate not in self.state.profiles:
            self._emit(payload)

    def note(self, author: str, text: str, call: str) -> None:
        """Log an agent's note, once for each call."""
        if call not in {note.call for note in self.state.notes}:
            self._emit(NotePayload(author, text, call))

    def begin_call(self, name: str, call: Call) -> None:
        """Log that a tool is being called, unless a driver that died has logged it already."""
        if name not in self.conversation.tools:
            self._emit(ToolCallPayload(name, _storable(call.tool[:100]), _cut(call)))

    def end_call(self, name: str, answer: Answer) -> None:
        """Log what a tool answered."""
        details = {DETAILS: answer.details.encode("utf-8", "replace")} if answer.details else None
        self._emit(ToolResultPayload(name, answer.ok, _storable(answer.text)), details)

    def report_budget(self) -> None:
        """Log what is used, if it has changed."""
        state, last = self.state, self.state.budget
        reported = (last.evaluations, last.tokens, last.limits) if last else (0, 0, None)
        limits = state.limits if last or state.extended else None
        if reported != (state.evaluations_used, state.tokens, limits):
            used = round(self.wall_clock_s, 3)
            self._emit(
                BudgetPayload(
                    state.evaluations_used, used, state.limits, state.tokens, state.dollars
                )
            )

    def _used_up(self) -> str | None:
        limits, state = self.state.limits, self.state
        if state.evaluations_used >= limits.evaluations:
            return f"evaluation budget of {limits.evaluations} used"
        if self.seconds_left <= 0:
            done = count(state.evaluations_used, "evaluation")
            return f"wall clock of {units.seconds(limits.wall_clock_s)} used after {done}"
        again = self.conversation.usage  # the next turn costs about what the last one did
        if limits.tokens is not None and self.tokens_left is not None:
            needed = again.context_tokens if again else 0
            if self.tokens_left <= needed:
                return f"token budget of {limits.tokens:,} used but for the closing words"
        if limits.dollars is not None:
            if state.dollars is None:
                return "the price of the model is not known, so its dollar budget cannot be kept"
            if state.dollars + 2 * (again.dollars or 0.0 if again else 0.0) >= limits.dollars:
                return f"budget of ${limits.dollars:,.2f} used but for the closing words"
        return None

    def _evaluation_spec(self, number: int, scope: str) -> EvaluationSpec:
        kind, _, case = scope.partition(" ")
        return EvaluationSpec(
            problem=self.spec.problem,
            source=self.source(number),
            language=self.state.candidates[number].language,
            device=self.spec.device,
            case_set=self.spec.case_set,
            cases=(case,) if case else (),
            timed=kind != "check",
        )

    def _take_requests(self) -> None:
        while self.state.stop is None:
            request = self._control.poll(self.state.request)
            if request is None:
                return
            self._emit(request)
            if request.action is ControlAction.extend:
                self.report_budget()

    @property
    def _asked_by(self) -> str:
        return self.state.asked_by or "a person"

    def _pass_to(self, status: RunStatus, reason: str, spec: RunSpec | None = None) -> None:
        known = self.state.ceilings
        roofs = () if known else self._evaluator.ceilings(self.spec.device)
        self._emit(RunPayload(status, reason, spec, roofs))

    def _emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> None:
        event = self._log.emit(payload, artifacts)
        if event.seq == self.state.last_seq + 1:
            self.state = self.state.apply(event)
            self.conversation = self.conversation.apply(event)
        else:  # a person's note came in between
            self._read_log()

    def _read_log(self) -> None:
        self.state, self.conversation = RunState(), Conversation()
        for event in self._log.history():
            self.state = self.state.apply(event)
            self.conversation = self.conversation.apply(event)

    def _step(self) -> str:
        pending = self.state.pending
        return f"evaluating c{pending[0]}" if pending else f"after event {self.state.last_seq}"


def describe_best(state: RunState) -> str:
    """`best c9: 1.62× over torch (95% 1.60–1.64)`, or that nothing passed."""
    if state.best is None:
        return "no candidate passed with a measured speedup"
    return f"best {describe(state, state.best)}"


def describe(state: RunState, number: int) -> str:
    """`c9: 1.62× over torch (95% 1.60–1.64)` of a candidate that was measured."""
    return f"c{number}: {describe_speedup(state.evaluations[number])}"


def describe_speedup(evaluation: Evaluation) -> str:
    """`1.62× over torch (95% 1.60–1.64)` of an evaluation that measured one."""
    baselines = dict.fromkeys(case.timing.baseline for case in evaluation.scored if case.timing)
    over = " and ".join(baselines)
    ratio, ci95 = units.speedup(evaluation.speedup), units.interval(evaluation.ci95)
    return f"{ratio} over {over} (95% {ci95})"


def _opening(spec: RunSpec) -> str:
    goal = "" if spec.goal_speedup is None else f"goal {spec.goal_speedup:g}×, "
    evaluations = count(spec.budgets.evaluations, "evaluation")
    limit = f"at most {evaluations} and {units.seconds(spec.budgets.wall_clock_s)}"
    who = " and ".join(dict.fromkeys(player.agent for player in spec.players))
    return f"{spec.problem} on {spec.device} with the {who} agent: {goal}{limit}"


def count(number: int, noun: str) -> str:
    """`1 evaluation`, `2 evaluations`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cut(call: Call) -> dict[str, Any]:
    """The arguments as an event shows them: long texts are cut, and say how long they are."""
    if call.malformed:
        return {"malformed": _storable(call.malformed[:ARGUMENT_CHARACTERS])}
    arguments = list(call.arguments.items())[:20]
    return {_storable(name[:100]): _cut_value(value) for name, value in arguments}


def _storable(text: str) -> str:
    """Lone surrogates have no UTF-8: a model can write one, and a tool then refuses it."""
    return text.encode("utf-8", "replace").decode()


def _cut_value(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    text = _storable(text)
    if len(text) <= ARGUMENT_CHARACTERS:
        return text if isinstance(value, str) else json.loads(text)
    digest = hashlib.sha256(text.encode()).hexdigest()[:12]
    return f"{text[:ARGUMENT_CHARACTERS]}… ({len(text):,} characters, sha256 {digest}…)"


def _shorten(evaluation: Evaluation) -> tuple[Evaluation, dict[str, bytes]]:
    """Move long program output out of the event: its tail stays, the whole becomes an artifact."""
    artifacts, tails = {}, {}
    for name in ("output", "compile_output"):
        text: str = getattr(evaluation, name)
        if len(text) > INLINE_CHARACTERS:
            artifacts[f"{name}.txt"] = text.encode("utf-8", "replace")
            tails[name] = text[-INLINE_CHARACTERS:]
    return replace(evaluation, **tails), artifacts  # type: ignore[arg-type]
