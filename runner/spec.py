"""What is asked for: a run, an evaluation, their budgets and limits.

Validation that needs the catalog lives here too, so the launch form, the command line and an
import refuse the same things with the same words.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernels.catalog import Case, Problem, UnknownProblem, load_problem
from runner import agents, workflows

AGENTS = agents.names()
REPLAY = "replay"  # the agent that is built from another run, and never launched by its name
WORKFLOWS = workflows.names()
OUTSIDE = "external"  # the agent that is somebody else's, and calls in over MCP
MODEL_AGENT = "claude"  # the agent that asks a model, and so has an effort and a price
CASE_SETS = {"host": "host", "cuda": "gpu"}  # what is measured by default on a device kind
LANGUAGES = {"host": "cpp", "cuda": "triton"}  # what an agent writes by default for a device kind


class SpecError(ValueError):
    """A request cannot be met: `field` names the input, `remedy` says what would work."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem} {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True)
class Budgets:
    """Hard limits of a run; the loop stops at whichever is reached first. None is no limit.

    `tokens` counts all that models read and wrote, from the cache too.
    """

    evaluations: int = 24
    wall_clock_s: float = 900.0
    tokens: int | None = None
    dollars: float | None = None

    MAX_EVALUATIONS = 1000
    MAX_WALL_CLOCK_S = 7 * 24 * 3600.0
    MIN_TOKENS = 20_000  # a brief, a turn and closing words
    MAX_DOLLARS = 10_000.0

    def __post_init__(self) -> None:
        if not 1 <= self.evaluations <= self.MAX_EVALUATIONS:
            raise SpecError(
                "evaluations",
                f"{self.evaluations} is outside 1–{self.MAX_EVALUATIONS}.",
                "Give a whole number in that range.",
            )
        if not 1 <= self.wall_clock_s <= self.MAX_WALL_CLOCK_S:
            raise SpecError(
                "wall_clock_s",
                f"{self.wall_clock_s:g} s is outside 1 s – 7 days.",
                "Give at least a few seconds per evaluation.",
            )
        if self.tokens is not None and self.tokens < self.MIN_TOKENS:
            problem = f"{self.tokens:,} are too few."
            remedy = f"Give at least {self.MIN_TOKENS:,}, or leave it empty."
            raise SpecError("tokens", problem, remedy)
        if self.dollars is not None and not 0 < self.dollars <= self.MAX_DOLLARS:
            problem = f"{self.dollars:g} is outside 0–{self.MAX_DOLLARS:,.0f}."
            raise SpecError("dollars", problem, "Give dollars, or leave it empty.")


@dataclass(frozen=True)
class Hint:
    """What a published knowledge entry tells an agent: constants that worked, and its claim."""

    entry: str
    claim: str
    kernel: str
    constants: dict[str, int]


@dataclass(frozen=True)
class AgentSpec:
    """Who acts. `model` and `effort` are for agents that ask a model; empty is the default."""

    agent: str
    model: str = ""
    effort: str = ""


@dataclass(frozen=True)
class RunSpec:
    """Everything that decides how a run goes; frozen at launch and kept in its archive.

    `partner` is the second agent of a workflow in which two alternate.
    """

    problem: str
    device: str = "host"
    case_set: str = "host"
    language: str = "cpp"
    agent: str = "search"
    workflow: str = "goal"
    goal_speedup: float | None = None
    seed: int = 0
    budgets: Budgets = field(default_factory=Budgets)
    hints: tuple[Hint, ...] = ()
    model: str = ""
    effort: str = ""
    partner: AgentSpec | None = None

    @property
    def players(self) -> tuple[AgentSpec, ...]:
        """Everybody who acts, in the order in which they first do."""
        first = AgentSpec(self.agent, self.model, self.effort)
        return (first,) if self.partner is None else (first, self.partner)

    @property
    def outside(self) -> bool:
        """True if an outside agent acts: it calls in, and cannot be asked for anything."""
        return any(player.agent == OUTSIDE for player in self.players)

    def _check_players(self) -> None:
        """As many agents as the workflow takes, which is known only once it is imported."""
        _one_of("workflow", self.workflow, workflows.names())
        wanted = workflows.get(self.workflow).PLAYERS
        if wanted > len(self.players):
            remedy = "Name the second agent."
            raise SpecError("partner", f"{self.workflow} takes {wanted} agents.", remedy)
        if wanted < len(self.players):
            remedy = "Leave it out, or use flame_chase."
            raise SpecError("partner", f"{self.workflow} takes one agent.", remedy)

    def validate(self) -> Problem:
        """Check against the catalog; returns the problem or raises SpecError."""
        problem = known_problem(self.problem)
        for player in self.players:
            if player.agent != REPLAY:
                _one_of("agent", player.agent, AGENTS)
            if player.agent == MODEL_AGENT:
                _check_model(player, self.budgets)
        if self.outside and self.workflow != "goal":
            alone = "an outside agent can only work alone on a goal."
            raise SpecError("workflow", alone, "Use goal.")
        self._check_players()
        _one_of("case_set", self.case_set, problem.case_sets(device_kind(self.device)))
        languages = sorted({kernel.language for kernel in problem.zoo})
        _one_of("language", self.language, languages)
        if self.goal_speedup is not None and not 0 < self.goal_speedup <= 1000:
            raise SpecError(
                "goal_speedup",
                f"{self.goal_speedup:g}× is outside 0–1000×.",
                "Leave it empty to use the whole budget.",
            )
        return problem


def known_problem(slug: str) -> Problem:
    """The problem of the catalog; raises SpecError."""
    try:
        return load_problem(slug)
    except UnknownProblem as error:
        raise SpecError("problem", str(error), error.remedy) from error


def known_case(problem: Problem, name: str) -> Case:
    """The problem's case of that name; raises SpecError."""
    for case in problem.cases:
        if case.name == name:
            return case
    remedy = f"Use one of: {', '.join(case.name for case in problem.cases)}."
    raise SpecError("case", f"{problem.slug} has no case {name!r}.", remedy)


def device_kind(device: str) -> str:
    """`host` for the host, `cuda` for `cuda:0` and its like; raises SpecError otherwise."""
    kind, _, index = device.partition(":")
    if kind == "host" and not index:
        return "host"
    if kind == "cuda" and (index.isdigit() or not index):
        return "cuda"
    raise SpecError("device", f"{device!r} names no device.", "Use host, or cuda:0.")


def _check_model(player: AgentSpec, budgets: Budgets) -> None:
    from runner.messages import pricing  # reads its table only where a model is asked for

    pricing.check(player, budgets)


def _one_of(field: str, value: str, choices: tuple[str, ...] | list[str]) -> None:
    if value not in choices:
        raise SpecError(field, f"{value!r} is not offered.", f"Use one of: {', '.join(choices)}.")


@dataclass(frozen=True)
class Limits:
    """What one evaluation may use. Deadlines are enforced from outside the child."""

    compile_s: float = 60.0
    deadline_s: float = 120.0
    output_bytes: int = 64 * 1024
    memory_bytes: int = 8 * 1024**3


@dataclass(frozen=True)
class EvaluationSpec:
    """One candidate to judge: `source` is a whole file, `pairs` the timed pairs per scored case.

    `cases` names the cases to judge, all of the set when empty; not `timed` ends after the check.
    """

    problem: str
    source: str
    language: str
    device: str = "host"
    case_set: str = "host"
    pairs: int = 30
    limits: Limits = field(default_factory=Limits)
    cases: tuple[str, ...] = ()
    timed: bool = True

    MAX_PAIRS = 10_000

    def __post_init__(self) -> None:
        if not 1 <= self.pairs <= self.MAX_PAIRS:
            problem = f"{self.pairs} is outside 1–{self.MAX_PAIRS}."
            raise SpecError("pairs", problem, "Give a whole number in that range.")
