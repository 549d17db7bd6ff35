"""What a log adds up to, and which logs contradict themselves."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from runner.events import (
    CandidatePayload,
    ControlPayload,
    EvaluationPayload,
    Event,
    MessageKind,
    MessagePayload,
    ProfilePayload,
    RunPayload,
    RunStatus,
    ToolResultPayload,
    artifact_ref,
    make_event,
)
from runner.results import Verdict
from runner.spec import RunSpec
from runner.state import BrokenLog, RunState
from tests.runner.fakes import RUN, make_evaluation

SPEC = RunSpec("softmax")
SOURCE = b"// 1.5\n"
STARTED = RunPayload(RunStatus.running, "started", SPEC)


def events(*steps: tuple[float, Any]) -> list[Event]:
    """Events at so many seconds after midnight; candidates carry their source."""
    made = []
    for seq, (second, payload) in enumerate(steps, start=1):
        at = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=second)
        files = {"source": SOURCE} if isinstance(payload, CandidatePayload) else None
        made.append(make_event(RUN, seq, at.isoformat(timespec="microseconds"), payload, files))
    return made


def candidate(
    number: int, parent: int | None = None, kernel: str = "", call: str = ""
) -> CandidatePayload:
    sha256 = artifact_ref("source", SOURCE).sha256
    return CandidatePayload(number, parent, "cpp", "An idea.", "search", sha256, kernel, call=call)


def step(
    number: int, speedup: float | None, kernel: str = "", **more: Any
) -> list[tuple[int, Any]]:
    verdict = Verdict.passed if speedup is not None or more else Verdict.crashed
    evaluation = make_evaluation(speedup, verdict, **more)
    return [(0, candidate(number, kernel=kernel)), (0, EvaluationPayload(number, evaluation))]


def test_the_best_is_the_fastest_passing_candidate_and_the_earlier_of_equals() -> None:
    steps = [*step(1, 1.2), *step(2, None), *step(3, 1.5), *step(4, 1.5), *step(5, 1.1)]
    state = RunState.from_events(events((0, STARTED), *steps))
    assert state.best == 3
    assert state.ranked == (3, 4, 1, 5)
    assert state.evaluations_used == 5


def test_the_frontier_keeps_the_best_of_each_kernel_and_of_each_case() -> None:
    steps = [
        *step(1, None, "rows", cases=[("big", 2.0), ("small", 2.0)]),
        *step(2, None, "rows", cases=[("big", 3.0), ("small", 1.0)]),
        *step(3, None, "rows", cases=[("big", 1.5), ("small", 1.5)]),
        *step(4, None, "online", cases=[("big", 1.1), ("small", 1.1)]),
        *step(5, None, "online", cases=[("big", 1.0), ("small", 1.0)]),
    ]
    assert RunState.from_events(events((0, STARTED), *steps)).frontier == (1, 2, 4)


def test_the_frontier_keeps_the_best_of_each_line_of_descent() -> None:
    judged = {1: 1.1, 2: 1.5, 3: 1.2, 4: 1.3, 5: 1.4}
    parents = {2: 1, 4: 3, 5: 2}  # two lines: 1, 2, 5 and 3, 4
    steps: list[tuple[int, Any]] = []
    for number, ratio in judged.items():
        steps.append((0, candidate(number, parents.get(number))))
        steps.append((0, EvaluationPayload(number, make_evaluation(ratio))))
    assert RunState.from_events(events((0, STARTED), *steps)).frontier == (2, 4)


def test_what_a_tool_call_wrote_waits_for_no_evaluation() -> None:
    written = candidate(2, parent=1, call="e9.1")
    state = RunState.from_events(events((0, STARTED), *step(1, 1.2), (0, written)))
    assert (list(state.candidates), state.pending) == ([1, 2], ())


def brief(ordinal: int, agent: str) -> MessagePayload:
    return MessagePayload(agent, "Go on.", MessageKind.brief, stage="leg", ordinal=ordinal)


def test_a_stage_opens_with_what_was_used_and_found_by_then() -> None:
    steps = [(0, brief(1, "ada")), *step(1, 1.2), (0, brief(2, "bob")), *step(2, 1.5)]
    state = RunState.from_events(events((0, STARTED), *steps))
    assert [(s.ordinal, s.agent, s.evaluations, s.best) for s in state.stages] == [
        (1, "ada", 0, None),
        (2, "bob", 1, 1),
    ]


def test_a_fresh_context_within_a_stage_opens_no_other() -> None:
    steps = [(0, brief(1, "ada")), *step(1, 1.2), (0, brief(1, "ada"))]
    state = RunState.from_events(events((0, STARTED), *steps))
    assert [opening.evaluations for opening in state.stages] == [0]


def test_a_candidate_without_evaluation_is_pending() -> None:
    state = RunState.from_events(events((0, STARTED), *step(1, 1.2), (0, candidate(2, parent=1))))
    assert state.pending == (2,)


def test_wall_clock_counts_driving_but_neither_queueing_nor_the_gap_before_a_resumption() -> None:
    log = events(
        (0, RunPayload(RunStatus.queued, "waiting for a worker", SPEC)),
        (100, RunPayload(RunStatus.running, "started")),
        (107, MessagePayload("search", "hello")),
        (1000, RunPayload(RunStatus.running, "resumed after event 3")),
        (1005, MessagePayload("search", "again")),
        (1006, RunPayload(RunStatus.queued, "worker shut down")),
        (1100, RunPayload(RunStatus.running, "resumed after event 6")),
        (1101, RunPayload(RunStatus.finished, "done")),
    )
    assert RunState.from_events(log).wall_clock_s == pytest.approx(7 + 5 + 1 + 1)


def test_a_clock_that_steps_back_never_gives_time_back() -> None:
    log = events((50, STARTED), (20, MessagePayload("search", "a")), (25, MessagePayload("b", "b")))
    assert RunState.from_events(log).wall_clock_s == pytest.approx(5)


def test_the_first_stop_request_is_kept() -> None:
    stops = [(1, ControlPayload("stop", "alice")), (2, ControlPayload("stop", "bob"))]
    state = RunState.from_events(events((0, STARTED), *stops))
    assert state.stop == ControlPayload("stop", "alice")


def test_applying_an_event_leaves_the_earlier_state_as_it_was() -> None:
    log = events((0, STARTED), *step(1, 1.2))
    before = RunState.from_events(log[:2])
    after = before.apply(log[2])
    assert (before.evaluations, before.last_seq) == ({}, 2)
    assert (after.best, after.last_seq) == (1, 3)


@pytest.mark.parametrize(
    ("steps", "complaint"),
    [
        ([(0, MessagePayload("a", "b"))], "must be a run event that holds the spec"),
        ([(0, RunPayload(RunStatus.running, "no spec"))], "the spec is on the first event"),
        ([(0, STARTED), (0, STARTED)], "the spec is on the first event"),
        ([(0, STARTED), (0, candidate(2))], "candidate c2 follows c0"),
        ([(0, STARTED), (0, candidate(1, parent=7))], "the parent c7 is not in the log"),
        ([(0, STARTED), step(1, 1.2)[1]], "evaluates c1, which is not in the log"),
        ([(0, STARTED), *step(1, 1.2), step(1, 1.3)[1]], "evaluates c1 a second time"),
    ],
)
def test_a_log_that_contradicts_itself_is_refused(
    steps: list[tuple[float, Any]], complaint: str
) -> None:
    with pytest.raises(BrokenLog, match=complaint):
        RunState.from_events(events(*steps))


def test_gaps_other_runs_missing_sources_and_other_time_zones_are_refused() -> None:
    first, second = events((0, STARTED), (1, MessagePayload("a", "b")))
    broken = {
        "numbers must be dense": Event(RUN, 3, second.at, second.type, second.payload),
        "not to": Event("another", 2, second.at, second.type, second.payload),
        "not an ISO 8601 time": Event(RUN, 2, "yesterday", second.type, second.payload),
        "not in UTC": Event(RUN, 2, "2026-01-01T00:00:00+02:00", second.type, second.payload),
    }
    for complaint, event in broken.items():
        with pytest.raises(BrokenLog, match=complaint):
            RunState.from_events([first, event])
    sourceless = make_event(RUN, 2, second.at, candidate(1))
    with pytest.raises(BrokenLog, match="source is not among"):
        RunState.from_events([first, sourceless])


def test_details_and_long_output_are_found_by_what_they_belong_to() -> None:
    log = events((0, STARTED), (0, candidate(1)))
    at = log[-1].at
    long_output = {"output.txt": b"printed"}
    evaluated = EvaluationPayload(1, make_evaluation(1.2))
    log.append(make_event(RUN, 3, at, evaluated, long_output))
    log.append(make_event(RUN, 4, at, ToolResultPayload("e2.1", True, "short")))
    log.append(make_event(RUN, 5, at, ToolResultPayload("e2.2", True, "s"), {"details.txt": b"d"}))
    log.append(make_event(RUN, 6, at, ProfilePayload(1, "none", False, "no profiler")))
    state = RunState.from_events(log)
    assert state.details == {"e2.2": artifact_ref("details.txt", b"d").sha256}
    assert state.printed == {(1, ""): (artifact_ref("output.txt", b"printed"),)}
    assert state.profiles[1].reason == "no profiler"
