"""The replay agent: another run's candidates again, and nothing of what was measured there."""

from __future__ import annotations

from runner.agents.replay import ReplayAgent
from runner.agents.scripted import ScriptedAgent
from runner.drive import drive
from runner.log import MemoryLog
from runner.results import Evaluation
from runner.spec import Budgets, RunSpec
from runner.state import RunState
from tests.runner.fakes import (
    FakeEvaluator,
    Requests,
    bench,
    by_first_line,
    finish,
    make_evaluation,
    make_log,
    only,
    talker,
    turn,
    write,
)

SPEC = RunSpec("softmax", agent="replay", budgets=Budgets(evaluations=20))


def replayed(earlier: MemoryLog, log: MemoryLog, evaluator: FakeEvaluator) -> RunState:
    agent = ReplayAgent.of(RunState.from_events(earlier.history()), earlier.read)
    drive(SPEC, log, evaluator, Requests(), create=only(agent))
    return RunState.from_events(log.history())


def first_run(*lines: str) -> MemoryLog:
    log, agent = make_log(), ScriptedAgent(tuple(f"// {line}\n" for line in lines))
    drive(RunSpec("softmax"), log, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    return log


def test_candidates_come_again_in_order_with_their_ideas_and_parents() -> None:
    earlier, log = first_run("1.2", "crashed", "1.5"), make_log()
    state = replayed(earlier, log, FakeEvaluator(by_first_line))
    before = RunState.from_events(earlier.history()).candidates
    for number, candidate in state.candidates.items():
        assert candidate.author == "replay"
        assert candidate.idea == before[number].idea
        assert candidate.parent == before[number].parent
        assert log.read(candidate.source_sha256) == earlier.read(before[number].source_sha256)
    assert list(state.candidates) == [1, 2, 3]
    assert state.reason.startswith("nothing left to try after 3 candidates; best c3")


def test_every_one_is_evaluated_afresh_whatever_it_got_before() -> None:
    def other_way_round(source: str) -> Evaluation:
        return make_evaluation(1.1 if "1.5" in source else 1.9)

    evaluator = FakeEvaluator(other_way_round)
    state = replayed(first_run("1.2", "1.5"), make_log(), evaluator)
    assert evaluator.asked == [1, 2]
    assert state.best == 1


def test_candidates_that_were_never_measured_are_measured_now() -> None:
    earlier = make_log()
    agent = talker(turn(write("1.2"), write("1.4", "Scratch."), bench(1)), turn(finish()))
    drive(RunSpec("softmax"), earlier, FakeEvaluator(by_first_line), Requests(), create=only(agent))
    state = replayed(earlier, make_log(), FakeEvaluator(by_first_line))
    assert (list(state.evaluations), state.best) == ([1, 2], 2)


def test_a_replay_cut_after_any_event_goes_on_where_it_was() -> None:
    earlier, whole = first_run("1.2", "crashed", "1.5"), make_log()
    replayed(earlier, whole, FakeEvaluator(by_first_line))
    for cut in range(1, len(whole.events)):
        log = make_log(whole.events[:cut], whole)
        state = replayed(earlier, log, FakeEvaluator(by_first_line))
        assert (list(state.evaluations), state.best) == ([1, 2, 3], 3)
