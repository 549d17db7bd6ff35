"""The offline agent: explores a problem's tuning space with Optuna and explains each move.

What it proposes is a pure function of the log and the spec: it keeps no state, and the sampler is
rebuilt and reseeded for each proposal, so a resumed run goes the way an undisturbed one goes. It
first tries what people have reviewed (the zoo's default, published knowledge), then a few random
settings, then what a tree-structured Parzen estimator expects most of, a few constants at a time
so that the effect of each can still be told.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernels.catalog import Problem, ZooKernel
from runner import units
from runner.loop import Proposal, describe
from runner.results import Evaluation, Verdict
from runner.spec import AgentSpec, RunSpec
from runner.state import RunState
from runner.tuning import Change, Setting, Space, default_setting, nearest_setting

if TYPE_CHECKING:
    import optuna

NAME = "search"
RANDOM_STARTS = 3  # the estimator needs some spread; more would waste a small budget
MOST_CHANGES = 3  # constants changed at once, and named in full in an idea
PARENTS = 3  # how many of the best a candidate may descend from
ATTEMPTS = 24  # draws that repeat a tried setting before the rest is listed
TOLD = 100  # the estimator hears of so many best and so many latest: telling all costs seconds
OTHER_KERNEL = 0.25  # chance to look at another kernel than the best one's
REASON_CHARACTERS = 160
SAYS_NOTHING = {  # about how good a kernel is
    Verdict.passed,  # without a timing
    Verdict.unmeasured,
    Verdict.timing_disputed,
    Verdict.harness_error,
}


def create(spec: AgentSpec) -> SearchAgent:
    return SearchAgent()


class SearchAgent:
    name = NAME

    def propose(self, problem: Problem, state: RunState) -> Proposal | None:
        """The next untried setting as a whole source, or None when all have been tried."""
        history = _History.read(problem, state)
        move = _planned(history) or _sampled(history)
        if move is None:
            return None
        parent = history.parent_of(move.setting)
        idea = _idea(history, move, parent)
        return Proposal(
            source=move.setting.source,
            language=move.setting.kernel.language,
            parent=parent,
            idea=idea,
            kernel=move.setting.kernel.name,
            constants=move.setting.constants,
            message=f"{_reflection(state)}{idea}",
        )

    def summarise(self, problem: Problem, state: RunState, reason: str) -> str:
        history = _History.read(problem, state)
        passed = sum(e.verdict is Verdict.passed for e in state.evaluations.values())
        tried = f"Tried {len(history.tried):,} of {history.space.size:,} settings"
        text = f"{tried}; {passed} of {len(state.evaluations)} evaluations passed."
        if state.best is None:
            return f"{text} No candidate has a measured speedup."
        best = _sentence(f"Best is {describe(state, state.best)}")
        return f"{text} {best}{_way_to(history, state.best)}"


@dataclass(frozen=True)
class _Move:
    """A setting to try, and why it was chosen when its changes do not say so."""

    setting: Setting
    why: str = ""


@dataclass(frozen=True)
class _History:
    """What the log says about the tuning space."""

    spec: RunSpec
    state: RunState
    space: Space
    settings: dict[int, Setting]

    @classmethod
    def read(cls, problem: Problem, state: RunState) -> _History:
        assert state.spec is not None, "a run has a spec from its first event on"
        space = Space.of(problem, state.spec.language)
        found = {n: space.setting_of(candidate) for n, candidate in state.candidates.items()}
        settings = {n: setting for n, setting in found.items() if setting is not None}
        return cls(state.spec, state, space, settings)

    @functools.cached_property
    def tried(self) -> frozenset[tuple[str, tuple[int, ...]]]:
        return frozenset(setting.key for setting in self.settings.values())

    @property
    def draws(self) -> random.Random:
        """Chance for this proposal alone: it depends on the seed and the proposal's number."""
        return random.Random(f"{self.spec.seed}/{len(self.state.candidates) + 1}")

    @property
    def best(self) -> int:
        """Where to go on from: the fastest, else the first candidate."""
        ranked = [number for number in self.state.ranked if number in self.settings]
        return ranked[0] if ranked else min(self.settings)

    def parent_of(self, setting: Setting) -> int | None:
        """The closest of the best candidates; the faster one of equally close."""
        if not self.settings:
            return None
        ranked = [number for number in self.state.ranked if number in self.settings][:PARENTS]
        return min(ranked or [self.best], key=lambda n: setting.distance(self.settings[n]))


def _planned(history: _History) -> _Move | None:
    """What people have reviewed, in order: the zoo's default, knowledge, the other defaults."""
    for move in _reviewed(history):
        if move.setting.key not in history.tried:
            return move
    return None


def _reviewed(history: _History) -> Iterator[_Move]:
    kernels = history.space.kernels
    yield from (_Move(default_setting(kernel)) for kernel in kernels[:1])
    for hint in history.spec.hints:
        kernel = history.space.kernel(hint.kernel)
        if kernel is not None:
            why = f"starts from knowledge entry {hint.entry}: {hint.claim}"
            yield _Move(nearest_setting(kernel, hint.constants), why)
    yield from (_Move(default_setting(kernel)) for kernel in kernels[1:])


def _sampled(history: _History) -> _Move | None:
    """A few random settings, then the estimator's; when both only repeat, whatever is left."""
    if not history.settings:
        return None  # the language has no zoo kernel
    draws = history.draws
    planned = {move.setting.key for move in _reviewed(history)}
    exploring = len(history.tried - planned) < RANDOM_STARTS
    base = history.settings[history.best]
    kernel = _choose_kernel(history, base.kernel, draws)
    study = _study(history, kernel, exploring, draws.getrandbits(32))
    for _ in range(ATTEMPTS):
        setting = _ask(study, kernel)
        if not exploring:
            setting = _near(setting, base, draws)
        if setting.key not in history.tried:
            why = "drawn at random to learn the space" if exploring else ""
            return _Move(setting, why)
    rest = next(history.space.remaining(history.tried, base), None)
    return None if rest is None else _Move(rest, "an untried neighbour of the best")


def _choose_kernel(history: _History, best: ZooKernel, draws: random.Random) -> ZooKernel:
    others = [kernel for kernel in history.space.kernels if kernel.name != best.name]
    return draws.choice(others) if others and draws.random() < OTHER_KERNEL else best


def _near(setting: Setting, base: Setting, draws: random.Random) -> Setting:
    """Keep one to MOST_CHANGES of the differences from `base`; settings of other kernels as is."""
    if setting.kernel.name != base.kernel.name:
        return setting
    differing = [i for i, value in enumerate(setting.values) if value != base.values[i]]
    kept = draws.sample(differing, min(len(differing), draws.randint(1, MOST_CHANGES)))
    values = (setting.values[i] if i in kept else old for i, old in enumerate(base.values))
    return Setting(setting.kernel, tuple(values))


def _study(history: _History, kernel: ZooKernel, exploring: bool, seed: int) -> optuna.Study:
    """A study in memory that has been told what the log says about settings of `kernel`."""
    import optuna  # here, because listing agents must not cost its import

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    samplers = optuna.samplers
    sampler: Any = samplers.RandomSampler(seed=seed)
    if not exploring:
        sampler = samplers.TPESampler(seed=seed, n_startup_trials=1)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    mine = {n: s for n, s in history.settings.items() if s.kernel.name == kernel.name}
    latest = [n for n in history.state.evaluations if n in mine][-TOLD:]
    best = [n for n in history.state.ranked if n in mine][:TOLD]
    for number in sorted({*latest, *best}):
        study.add_trial(_told(mine[number], history.state.evaluations[number]))
    return study


def _told(setting: Setting, evaluation: Evaluation) -> optuna.trial.FrozenTrial:
    """A failed kernel counts as worse than any measured one, what says nothing as no trial."""
    from optuna.trial import TrialState, create_trial

    value = None if evaluation.speedup is None else math.log(evaluation.speedup)
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    if value is None and evaluation.verdict in SAYS_NOTHING:
        state = TrialState.FAIL
    distributions = _distributions(setting.kernel)
    return create_trial(
        state=state, value=value, params=setting.constants, distributions=distributions
    )


def _ask(study: optuna.Study, kernel: ZooKernel) -> Setting:
    params = study.ask(_distributions(kernel)).params
    return Setting(kernel, tuple(params[parameter.name] for parameter in kernel.parameters))


def _distributions(kernel: ZooKernel) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution

    return {p.name: CategoricalDistribution(p.values) for p in kernel.parameters}


def _idea(history: _History, move: _Move, parent: int | None) -> str:
    """One sentence: what changed against the parent, and why that should pay."""
    kernel = move.setting.kernel
    if parent is None:
        start = f"Start from the zoo kernel {kernel.name} as it is"
        return _sentence(f"{start}: {move.why or kernel.idea}")
    origin = history.settings[parent]
    if origin.kernel.name != kernel.name:
        return _sentence(
            f"{kernel.name} instead of c{parent}'s {origin.kernel.name}: {move.why or kernel.idea}"
        )
    changes = move.setting.changes_from(origin)
    mechanisms = "; ".join(_mechanism(change) for change in changes[:MOST_CHANGES])
    why = f" ({move.why})" if move.why else ""
    return _sentence(f"{_list(changes)} from c{parent}{why}: {mechanisms}")


def _mechanism(change: Change) -> str:
    """A parameter's `why` speaks for leaving the default; other moves put it to the test."""
    parameter = change.parameter
    if change.old == parameter.default:
        return parameter.why
    if change.new == parameter.default:
        return f"what it is worth that {parameter.why}"
    return f"how far it carries that {parameter.why}"


def _list(changes: tuple[Change, ...]) -> str:
    named = ", ".join(str(change) for change in changes[:MOST_CHANGES])
    more = len(changes) - MOST_CHANGES
    return f"{named} and {more} more" if more > 0 else named


def _reflection(state: RunState) -> str:
    """What the last evaluation taught, before the next idea."""
    if not state.evaluations:
        return ""
    number = max(state.evaluations)
    evaluation = state.evaluations[number]
    if evaluation.speedup is None:
        return f"c{number} {_failure(evaluation)} "
    if number == state.best:
        return f"{describe(state, number)}, the best so far. "
    assert state.best is not None, "a measured candidate makes some candidate the best"
    record = units.speedup(state.evaluations[state.best].speedup)
    return f"{describe(state, number)}, behind c{state.best} with {record}. "


def _failure(evaluation: Evaluation) -> str:
    reason = " ".join(evaluation.reason.split())[:REASON_CHARACTERS]
    ended = f"ended as {evaluation.verdict.value.replace('_', ' ')}"
    return _sentence(f"{ended}: {reason}" if reason else ended)


def _way_to(history: _History, number: int) -> str:
    """The steps that led to a candidate, each with its measured speedup."""
    steps: list[str] = []
    current: int | None = number
    while current is not None:
        candidate = history.state.candidates[current]
        evaluation = history.state.evaluations.get(current)
        ratio = units.speedup(evaluation.speedup if evaluation else None)
        setting, origin = history.settings.get(current), history.settings.get(candidate.parent or 0)
        changed = ""
        if setting and origin and setting.kernel.name == origin.kernel.name:
            changed = f" by {_list(setting.changes_from(origin))}"
        steps.append(f"c{current} {ratio}{changed}")
        current = candidate.parent
    return f" The way there: {', then '.join(reversed(steps))}." if len(steps) > 1 else ""


def _sentence(text: str) -> str:
    return f"{text.strip().rstrip('.')}."
