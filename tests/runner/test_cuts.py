"""A driver killed after any event: another one goes on, and the log says the same in the end.

Every workflow, with agents that talk and agents that propose. Between two events nothing is kept,
so these cuts are all the moments there are, as far as the log is concerned.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from runner import agents
from runner.agents import Agent
from runner.drive import Create, drive
from runner.events import Event, EventType, RunStatus
from runner.log import MemoryLog
from runner.loop import Interrupted
from runner.results import Evaluation
from runner.spec import AgentSpec, Budgets, EvaluationSpec, RunSpec
from runner.state import RunState
from tests.runner.fakes import (
    RUN,
    FakeEvaluator,
    Requests,
    Seconds,
    bench,
    by_constants,
    by_first_line,
    finish,
    in_order,
    make_log,
    talker,
    turn,
    write,
)
from tests.runner.workbench import FakeExaminer, review

FIRST_CASE = "2048x2048-fp32"
BUDGETS = Budgets(evaluations=20, wall_clock_s=1e5)
NOTE: tuple[str, dict[str, Any]] = ("write_note", {"text": "Wide loads paid: 1.2× to 1.5×."})


@dataclass(frozen=True)
class Scene:
    """A run to be cut: what is asked for, who plays, and how sources are judged."""

    spec: RunSpec
    players: tuple[Agent, ...] = ()
    judge: Callable[[str], Evaluation] = by_first_line

    @property
    def create(self) -> Create:
        return in_order(*self.players) if self.players else agents.create


def softmax(workflow: str, *players: Agent, goal: float | None = None) -> Scene:
    partner = AgentSpec("search") if len(players) == 2 else None
    spec = RunSpec(
        "softmax", workflow=workflow, partner=partner, budgets=BUDGETS, goal_speedup=goal
    )
    return Scene(spec, players)


def searching(workflow: str) -> Scene:
    partner = AgentSpec("search") if workflow == "flame_chase" else None
    budgets = Budgets(evaluations=6, wall_clock_s=1e5)
    spec = RunSpec("softmax", workflow=workflow, partner=partner, seed=3, budgets=budgets)
    return Scene(spec, judge=by_constants)


LOOKING = turn(("read_problem", {}), ("list_zoo", {}), ("search_knowledge", {"query": "softmax"}))
WRITING = (
    turn(("read_zoo", {"kernel": "softmax_rows"}), text="What is there?"),
    turn(write("1.2", "Plain rows.")),
    turn(("simulate", {"candidate": 1}), ("check", {"candidate": 1}), bench(1, FIRST_CASE)),
    turn(bench(1)),
    turn(write("wrong_values", "No maximum.", parent=1), bench(2), bench(9)),
    turn(
        (
            "edit_candidate",
            {"parent": 1, "old": "// 1.2", "new": "// 1.5", "idea": "Wide loads."},
        ),
        bench(3),
        NOTE,
    ),
)
DONE = turn(finish("Wide loads paid."))

SCENES = {
    "goal": softmax("goal", talker(LOOKING, *WRITING, DONE, closing="Wide loads paid.")),
    "goal reached": softmax("goal", talker(LOOKING, *WRITING, DONE), goal=1.4),
    "goal asked again": softmax("goal", talker(*WRITING, DONE, turn(bench(1)), DONE, DONE), goal=9),
    "idle": softmax("goal", talker(*[turn(text="Hm.")] * 4)),
    "stuck": softmax("goal", talker(*[turn(bench(9))] * 8)),
    "claims": softmax("goal", talker(*[turn(finish("Ten times faster."))] * 3)),
    "pipeline": softmax(
        "pipeline",
        talker(
            LOOKING, DONE, *WRITING, DONE, turn(("frontier", {})), DONE, turn(NOTE), *[DONE] * 5
        ),
    ),
    "flame chase": softmax(
        "flame_chase",
        talker(turn(write("1.2"), bench(1)), DONE, turn(text="Hm."), DONE, DONE, name="ada"),
        talker(turn(write("1.5", parent=1), bench(2), NOTE), DONE, DONE, DONE, name="bob"),
    ),
    "search, goal": searching("goal"),
    "search, pipeline": searching("pipeline"),
    "search, flame chase": searching("flame_chase"),
}


class Once(FakeEvaluator):
    """Refuses to measure what the log holds already."""

    def __init__(self, judge: Callable[[str], Evaluation], known: RunState) -> None:
        super().__init__(judge)
        self._done = {(number, "") for number in known.evaluations} | set(known.trials)

    def evaluate(self, number: int, spec: EvaluationSpec, scope: str = "") -> Evaluation:
        assert (number, scope) not in self._done, f"c{number} {scope} is evaluated twice"
        self._done.add((number, scope))
        return super().evaluate(number, spec, scope)


def facts(events: list[Event]) -> list[str]:
    """What a log says; resumptions, times and the numbers of events aside."""
    told = []
    for event in events:
        payload = dict(event.payload)
        payload.pop("wall_clock_s", None)
        if not payload.get("reason", "").startswith("resumed after"):
            told.append(f"{event.type.value} {json.dumps(payload, ensure_ascii=False)}")
    text = "\n".join(told)
    text = re.sub(r"used, [^,]* left", "used, time left", text)
    text = re.sub(r"Known already; [^\\]*\\n", "", text)
    calls: dict[str, str] = {}
    count = itertools.count(1)
    text = re.sub(r"\be\d+\.\d+\b", lambda m: calls.setdefault(m[0], f"call {next(count)}"), text)
    return text.splitlines()


def play(scene: Scene, log: MemoryLog) -> RunStatus:
    evaluator = Once(scene.judge, RunState.from_events(log.history()))
    control, create = Requests(), scene.create
    return drive(
        scene.spec,
        log,
        evaluator,
        control,
        clock=Seconds(),
        create=create,
        examiner=FakeExaminer(review()),
    )


@pytest.mark.parametrize("name", SCENES)
def test_a_run_cut_after_any_event_goes_on_as_if_undisturbed(name: str) -> None:
    scene, whole = SCENES[name], make_log()
    status = play(scene, whole)
    expected = facts(whole.events)
    for cut in range(1, len(whole.events)):
        log = make_log(whole.events[:cut], whole)
        assert play(scene, log) is status
        assert facts(log.events) == expected, f"cut after event {cut}"


class Dying(MemoryLog):
    """Its driver dies as soon as an event is written that is news."""

    def emit(self, payload: Any, artifacts: Mapping[str, bytes] | None = None) -> Event:
        event = super().emit(payload, artifacts)
        if _resumes(event) or event.payload.get("status") == RunStatus.finished:
            return event
        raise Interrupted("killed")


@pytest.mark.parametrize("name", SCENES)
def test_a_run_whose_driver_dies_after_every_single_event_still_ends_the_same(name: str) -> None:
    scene, whole = SCENES[name], make_log()
    play(scene, whole)
    log = Dying(RUN)
    while not RunState.from_events(log.history()).status.ended:
        with contextlib.suppress(Interrupted):
            play(scene, log)
    assert facts(log.events) == facts(whole.events)


def _resumes(event: Event) -> bool:
    return event.type is EventType.run and "resumed after" in event.payload["reason"]


def test_the_scenes_show_what_they_are_to_show() -> None:
    ended = {}
    for name, scene in SCENES.items():
        log = make_log()
        play(scene, log)
        ended[name] = log.events[-1].decoded.reason.partition(";")[0]
    assert ended == {
        "goal": "the agent finished after 3 candidates",
        "goal reached": "goal of 1.4× reached by c3: 1.50× over torch (95% 1.48–1.52)",
        "goal asked again": "the agent finished after 3 candidates",
        "idle": "the agent called no tool in 3 turns",
        "stuck": "the agent repeated failing calls to no avail",
        "claims": "the agent finished after 0 candidates",
        "pipeline": "a whole round brought nothing faster",
        "flame chase": "neither agent found anything more",
        "search, goal": "evaluation budget of 6 used",
        "search, pipeline": "evaluation budget of 6 used",
        "search, flame chase": "evaluation budget of 6 used",
    }
