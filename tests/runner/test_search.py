"""The search agent: a pure function of the log, never repeating itself, saying what it does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernels.catalog import Problem, load_problem
from runner import agents
from runner.agents.search import SearchAgent
from runner.drive import drive
from runner.events import MessagePayload
from runner.log import MemoryLog
from runner.loop import Proposal
from runner.results import Evaluation, Verdict
from runner.spec import AgentSpec, Budgets, Hint, RunSpec
from runner.state import RunState
from runner.tuning import Space, default_setting, nearest_setting
from tests.runner.fakes import (
    FakeEvaluator,
    Requests,
    by_constants,
    make_evaluation,
    make_log,
    only,
)

ROOT = Path(__file__).resolve().parents[2]
PROBLEM = load_problem("softmax")
KERNEL = PROBLEM.kernels("cpp")[0]


def searched(evaluations: int, seed: int = 0, hints: tuple[Hint, ...] = ()) -> MemoryLog:
    log = make_log()
    spec = RunSpec("softmax", seed=seed, hints=hints, budgets=Budgets(evaluations=evaluations))
    drive(spec, log, FakeEvaluator(by_constants), Requests())
    return log


def state_of(log: MemoryLog) -> RunState:
    return RunState.from_events(log.history())


def constants_of(log: MemoryLog) -> list[dict[str, int]]:
    return [candidate.constants for candidate in state_of(log).candidates.values()]


def test_the_first_candidate_is_the_zoo_kernel_with_its_defaults() -> None:
    log = searched(1)
    first = state_of(log).candidates[1]
    assert first.constants == {p.name: p.default for p in KERNEL.parameters}
    assert log.read(first.source_sha256).decode() == KERNEL.source
    assert first.idea.startswith(f"Start from the zoo kernel {KERNEL.name} as it is: ")


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    assert constants_of(searched(8, seed=4)) == constants_of(searched(8, seed=4))
    assert constants_of(searched(8, seed=4)) != constants_of(searched(8, seed=5))


def test_a_proposal_depends_on_the_log_alone_and_not_on_the_process() -> None:
    program = "from tests.runner.test_search import *; print(constants_of(searched(6)))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(constants_of(searched(6)))


def test_no_constants_are_tried_twice_and_all_are_legal() -> None:
    legal = {parameter.name: parameter.values for parameter in KERNEL.parameters}
    for seed in range(4):
        tried = constants_of(searched(16, seed=seed))
        assert len({tuple(sorted(constants.items())) for constants in tried}) == 16
        assert all(value in legal[name] for c in tried for name, value in c.items())


def test_each_source_is_written_with_the_constants_of_its_candidate() -> None:
    log = searched(6)
    for candidate in state_of(log).candidates.values():
        source = log.read(candidate.source_sha256).decode()
        for name, value in candidate.constants.items():
            assert re.search(rf"^constexpr int {name} = {value};", source, re.MULTILINE)


def test_knowledge_is_tried_right_after_the_default_and_clamped_to_what_is_legal() -> None:
    parameter = KERNEL.parameters[0]
    hints = (
        Hint("wide-vectors", "wide vectors pay", KERNEL.name, {parameter.name: 10_000, "GONE": 3}),
        Hint("elsewhere", "another kernel", "no_such_kernel", {parameter.name: 4}),
    )
    second = state_of(searched(2, hints=hints)).candidates[2]
    expected = {p.name: p.default for p in KERNEL.parameters} | {
        parameter.name: max(parameter.values)
    }
    assert second.constants == expected
    assert "starts from knowledge entry wide-vectors: wide vectors pay" in second.idea


def test_an_idea_names_what_changed_against_the_parent_and_why() -> None:
    state = state_of(searched(16, seed=1))
    why = {parameter.name: parameter.why for parameter in KERNEL.parameters}
    for candidate in list(state.candidates.values())[1:]:
        assert candidate.parent is not None
        before = state.candidates[candidate.parent].constants
        changed = [n for n in why if candidate.constants[n] != before[n]]
        for name in changed[:3]:
            assert f"{name} {before[name]} → {candidate.constants[name]}" in candidate.idea
            assert why[name] in candidate.idea
        assert f"from c{candidate.parent}" in candidate.idea
        more = len(changed) - 3
        assert (f"and {more} more from" in candidate.idea) is (more > 0)


def test_a_candidate_after_the_random_starts_changes_at_most_three_constants_of_its_parent() -> (
    None
):
    state = state_of(searched(16, seed=2))
    for number, candidate in list(state.candidates.items())[4:]:
        assert candidate.parent is not None
        before = state.candidates[candidate.parent].constants
        changed = sum(before[name] != value for name, value in candidate.constants.items())
        assert 1 <= changed <= 3, f"c{number}"


def test_the_search_finds_more_than_chance_where_constants_pay() -> None:
    """On a smooth landscape the later half of a run must be better than its first half."""

    def judge(source: str) -> Evaluation:
        values = [int(v) for v in re.findall(r"^constexpr int \w+ = (\d+);", source, re.M)]
        return make_evaluation(0.5 + 0.1 * sum(value > 1 for value in values), source=source)

    gains = []
    for seed in range(5):
        log = make_log()
        spec = RunSpec("softmax", seed=seed, budgets=Budgets(evaluations=20))
        drive(spec, log, FakeEvaluator(judge), Requests())
        speedups = [e.speedup or 0.0 for e in state_of(log).evaluations.values()]
        gains.append(sum(speedups[10:]) - sum(speedups[:10]))
    assert min(gains) > 0


def test_failures_of_every_kind_leave_the_search_able_to_propose() -> None:
    verdicts = [Verdict.crashed, Verdict.harness_error, Verdict.unmeasured, Verdict.timeout]
    turns = iter(verdicts * 3)
    log = make_log()
    evaluator = FakeEvaluator(lambda source: make_evaluation(None, next(turns), reason="so"))
    drive(RunSpec("softmax", budgets=Budgets(evaluations=12)), log, evaluator, Requests())
    state = state_of(log)
    assert state.evaluations_used == 12
    assert state.reason == (
        "evaluation budget of 12 used; no candidate passed with a measured speedup"
    )


def test_the_message_reflects_on_the_last_result_and_the_summary_tells_the_way() -> None:
    log = searched(12, seed=3)
    state = state_of(log)
    said = [e.decoded for e in log.events if isinstance(e.decoded, MessagePayload)]
    assert all(message.author == "search" for message in said)
    assert said[1].text.startswith("c1")
    assert said[1].text.endswith(state.candidates[2].idea)
    size = Space.of(PROBLEM, "cpp").size
    assert f"Tried 12 of {size:,} settings" in said[-1].text
    assert f"Best is c{state.best}: " in said[-1].text
    assert "The way there: c1" in said[-1].text


def test_several_kernels_of_a_language_are_all_started_from() -> None:
    sibling = type(KERNEL)("twin", KERNEL.path, "cpp", "a twin", "any", KERNEL.parameters[:2])
    problem = Problem(**{**vars(PROBLEM), "zoo": (KERNEL, sibling)})
    log = make_log()
    spec = RunSpec("softmax", budgets=Budgets(evaluations=9))
    agent = _Elsewhere(problem)
    drive(spec, log, FakeEvaluator(by_constants), Requests(), create=only(agent))
    candidates = state_of(log).candidates
    assert [candidates[1].kernel, candidates[2].kernel] == [KERNEL.name, "twin"]
    assert candidates[2].idea == f"twin instead of c1's {KERNEL.name}: a twin."
    assert len({(c.kernel, tuple(c.constants.values())) for c in candidates.values()}) == 9


class _Elsewhere:
    """The search agent on a problem that no catalog holds."""

    name = "search"

    def __init__(self, problem: Problem) -> None:
        self._agent, self._problem = SearchAgent(), problem

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        return self._agent.propose(self._problem, state)

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        return self._agent.summarise(self._problem, state, reason)


def test_what_is_left_starts_with_the_neighbours_and_covers_the_space_once() -> None:
    space = Space.of(load_problem("vector_add"), "triton")
    start = default_setting(space.kernels[0])
    tried = {start.key}
    order = []
    while (setting := next(space.remaining(tried, start), None)) is not None:
        order.append(setting)
        tried.add(setting.key)
    assert len(order) == space.size - 1
    near = [setting.distance(start) == 1 for setting in order]
    assert near == sorted(near, reverse=True)


def test_a_constant_between_two_legal_values_moves_to_the_nearest() -> None:
    parameter = KERNEL.parameters[0]
    low, high = sorted(parameter.values)[:2]
    for wanted in (low, high, low - 5):
        setting = nearest_setting(KERNEL, {parameter.name: wanted})
        assert setting.constants[parameter.name] == (low if wanted <= low else high)


def test_agents_are_listed_without_importing_optuna() -> None:
    program = (
        "import sys; from runner import agents, spec; assert 'search' in spec.AGENTS; "
        "agents.create(spec.AgentSpec('search')); sys.exit('optuna' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT).returncode == 0


def test_an_agent_that_is_not_offered_is_refused_by_name() -> None:
    with pytest.raises(LookupError, match="no agent is called 'scripted'"):
        agents.create(AgentSpec("scripted"))
