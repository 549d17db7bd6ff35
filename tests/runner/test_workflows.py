"""Workflows as a kind: found by their file, launched by name, for one agent or for two."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runner import workflows
from runner.agents.scripted import ScriptedAgent
from runner.drive import drive
from runner.spec import AgentSpec, RunSpec, SpecError
from runner.workflows import goal
from tests.runner.fakes import FakeEvaluator, Requests, by_first_line, make_log, only

ONE_SHOT = '''
"""One candidate, and that is all."""

from runner import endings, turns
from runner.workflows.goal import STAGE

TITLE = "One shot"
PLAYERS = 1


def run(loop, players):
    while not loop.state.evaluations:
        turns.take(loop, players[0], STAGE, 1)
    return endings.done(loop, "one shot taken")
'''


@pytest.fixture
def one_shot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workflow that is added as one file, and touches nothing else."""
    (tmp_path / "one_shot.py").write_text(ONE_SHOT)
    monkeypatch.setattr(workflows, "__path__", [*workflows.__path__, str(tmp_path)])
    monkeypatch.delitem(sys.modules, "runner.workflows.one_shot", raising=False)
    return "one_shot"


def test_a_workflow_is_added_as_one_file(one_shot: str) -> None:
    assert one_shot in workflows.names()
    assert workflows.get(one_shot).TITLE == "One shot"
    log, agent = make_log(), ScriptedAgent(("// 1.2\n", "// 1.5\n"))
    spec = RunSpec("softmax", workflow=one_shot)
    drive(spec, log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    assert log.events[-1].decoded.reason.startswith("one shot taken; best c1: 1.20×")


def test_every_workflow_says_what_it_is_and_how_many_agents_it_takes() -> None:
    assert set(workflows.names()) >= {"flame_chase", "goal", "pipeline"}
    for name in workflows.names():
        workflow = workflows.get(name)
        assert workflow.TITLE.count(": ") == 1
        assert workflow.PLAYERS in (1, 2)


def test_an_unknown_workflow_is_refused_with_those_there_are() -> None:
    with pytest.raises(LookupError, match="there are: flame_chase, goal, pipeline"):
        workflows.get("dance")
    with pytest.raises(SpecError, match="Use one of: flame_chase, goal, pipeline"):
        RunSpec("softmax", workflow="dance").validate()


def test_two_agents_are_asked_for_where_two_play_and_refused_elsewhere() -> None:
    partner = AgentSpec("search")
    RunSpec("softmax", workflow="flame_chase", partner=partner).validate()
    with pytest.raises(SpecError, match="flame_chase takes 2 agents") as alone:
        RunSpec("softmax", workflow="flame_chase").validate()
    for workflow in ("goal", "pipeline"):
        with pytest.raises(SpecError, match=f"{workflow} takes one agent") as crowded:
            RunSpec("softmax", workflow=workflow, partner=partner).validate()
        assert crowded.value.field == "partner"
    assert alone.value.field == "partner"


def test_the_goal_workflow_offers_every_tool() -> None:
    assert "benchmark" in goal.STAGE.tools
