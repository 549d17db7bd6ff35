"""Barrier protocols of explicitly synchronised kernels: every interleaving, searched without a GPU.

Owns the verdict, the choice of configurations and the words about what was covered. The text of a
kernel becomes operations (`protocol_ir`), these one list of events a partition (`protocol_unroll`,
`protocol_operations`), one choice of unknown values at a time (`protocol_values`), and these are
searched (`protocol_search`) and explained (`protocol_explain`).
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field

from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    Source,
    verdict_of,
)
from runner.analysis.protocol_events import Event
from runner.analysis.protocol_explain import explain
from runner.analysis.protocol_facts import Inexact
from runner.analysis.protocol_ir import Module, UnreadableIR, read_module
from runner.analysis.protocol_search import Fault, Search
from runner.analysis.protocol_unroll import unroll
from runner.analysis.protocol_values import Domain, World, leaves
from runner.analysis.protocol_walk import Budget, NoSuchSlot, NotUnderstood, Undecided

_ASYNCHRONOUS = re.compile(
    r"ttng\.(?:init_barrier|async_tma|warp_group_dot|tc_gen5|fence_async)|ttg\.(?:warp_specialize"
    r"|async_copy)"
)
_BARRIERS = re.compile(r"memdesc<(\d+)x1xi64")
_TILES = re.compile(r"memdesc<(\d+)x\d+x\d+x[a-z]")
LONGEST_RING = 8  # a longer first dimension is a tile's, and trips grow with it
MOST_TRIPS = 256  # beyond what is wanted, where the values allow nothing less
ASSUMED = (
    "the warps of one partition are taken as one thread: their order among themselves is the"
    " compiler's business; values loaded from memory are taken as free, and as equal where their"
    " addresses are; global memory and clusters of blocks are not looked at"
)


@dataclass(frozen=True)
class Limits:
    """How much is searched before the answer is `incomplete`; a few seconds at the most."""

    configurations: int = 256
    states: int = 200_000
    operations: int = 300_000


@dataclass
class _Coverage:
    configurations: int = 0
    states: int = 0
    partitions: int = 0
    values: dict[str, set[int]] = field(default_factory=dict)
    trips: dict[str, set[int]] = field(default_factory=dict)

    def sentence(self) -> str:
        tried = [f"{name} = {_listed(values)}" for name, values in sorted(self.values.items())]
        loops = [f"the loop of {line} ran {_listed(n)} times" for line, n in self.trips.items()]
        parts = [
            f"all interleavings of {self.partitions} partition{'s' * (self.partitions != 1)} in"
            f" {self.configurations} configuration{'s' * (self.configurations != 1)},"
            f" {self.states:,} states",
            *tried,
            *loops,
        ]
        return "; ".join(parts)


def synchronises(ttgir: str) -> bool:
    """Whether there is anything to search: barriers, partitions or asynchronous operations."""
    return _ASYNCHRONOUS.search(ttgir) is not None


def examine_protocol(ttgir: str, kernel: str = "", limits: Limits | None = None) -> Analysis:
    """Searches the kernel whose TTGIR, as triton prints it, is given.

    `clean` says that no interleaving within the bounds named in `scope` goes wrong. `incomplete`:
    an operation was not understood, or the bounds were too small to finish; findings may stand
    beside it all the same. The search ends at the first configuration in which a kernel fails.
    """
    if not synchronises(ttgir):
        scope = ("no barrier, partition or asynchronous operation: nothing to search",)
        return Analysis(AnalysisVerdict.clean, "", (), scope)
    try:
        module = read_module(ttgir)
        return _Examination(module, kernel, limits or Limits()).run()
    except UnreadableIR as unreadable:
        return _incomplete(f"the IR cannot be read: {unreadable}", None, kernel, (), ())


class _Examination:
    def __init__(self, module: Module, kernel: str, limits: Limits) -> None:
        self.module, self.limits = module, limits
        self.kernel = kernel or module.kernel.name
        self.budget = Budget(limits.operations)
        self.coverage = _Coverage()
        self.findings: dict[tuple[FindingKind, Source | None], Finding] = {}
        self.stages = _stages(module)
        self.truncated = False

    def run(self) -> Analysis:
        queue = deque([World()])
        try:
            while queue:
                if self._exhausted():
                    return self._stopped("the bounds were reached before all was searched")
                world = queue.popleft()
                try:
                    if self._search(world):
                        return self._finished(bool(queue))
                except Undecided as open_question:
                    queue.extend(self._answers(world, open_question))
                if self.truncated:
                    return self._stopped("the bounds were reached before all was searched")
        except NotUnderstood as gap:
            return self._stopped(f"not understood: {gap.what}", gap.source)
        except Inexact as doubt:
            return self._stopped(_doubt(doubt.first, doubt.second), doubt.first.source)
        if idle := [line for line, counts in self.coverage.trips.items() if max(counts) == 0]:
            return self._stopped(f"no values were found with which the loop of {idle[0]} runs")
        return self._finished(False)

    def _finished(self, stopped_early: bool) -> Analysis:
        findings = tuple(self.findings.values())
        return Analysis(verdict_of(findings), "", findings, self._scope(stopped_early))

    def _exhausted(self) -> bool:
        limits, coverage = self.limits, self.coverage
        return coverage.configurations >= limits.configurations or coverage.states >= limits.states

    def _search(self, world: World) -> bool:
        """Searches one world; whether a violation ended it."""
        try:
            program = unroll(self.module, world, self.budget)
        except NoSuchSlot as beyond:
            finding = self._out_of_bounds(beyond, world)
            self.findings.setdefault((finding.kind, finding.source), finding)
            return True
        outcome = Search(program, self.limits.states - self.coverage.states).run()
        self._count(world, len(program.processes), outcome.states, program.trips)
        self.truncated = outcome.truncated
        for violation in outcome.violations:
            finding = explain(program, violation, world.labels, self.kernel)
            self.findings.setdefault((finding.kind, finding.source), finding)
        return any(v.fault is not Fault.no_fence for v in outcome.violations)

    def _out_of_bounds(self, beyond: NoSuchSlot, world: World) -> Finding:
        return Finding(
            FindingKind.out_of_bounds_read,
            Severity.error,
            f"slot {beyond.index} of {beyond.view.name} is used, which has"
            f" {beyond.view.shape[0]} slots: what lies behind it is another buffer",
            beyond.source,
            level="ttgir",
            kernel=self.kernel,
            evidence={"assumed": world.labels},
        )

    def _count(
        self, world: World, partitions: int, states: int, trips: dict[str, set[int]]
    ) -> None:
        self.coverage.configurations += 1
        self.coverage.states += states
        self.coverage.partitions = max(self.coverage.partitions, partitions)
        for name, value in world.labels.items():
            self.coverage.values.setdefault(name, set()).add(value)
        for line, counts in trips.items():
            self.coverage.trips.setdefault(line, set()).update(counts)

    def _answers(self, world: World, question: Undecided) -> list[World]:
        if question.purpose == "branch":
            ends = question.trip >= 2 * self.stages + 2
            worlds = world.assuming(question.value, (0,) if ends else (0, 1))
        elif question.purpose == "trips":
            worlds = self._ways_through(world, question)
        else:
            outcomes = range(question.slots or 2 * self.stages + 3)
            worlds = world.fixing(question.value, outcomes)
        if not worlds:
            raise NotUnderstood(f"{question.purpose} that no value was found for", question.source)
        return worlds

    def _ways_through(self, world: World, question: Undecided) -> list[World]:
        """Worlds by the trips of a loop; where no wanted count is possible, the least that are.

        A branch taken before can rule out the wanted ones, and so can a length that is known to be
        a multiple of 16: of its multiples as many are tried as bring the ring to every position.
        """
        value, counts = question.value, self._trip_counts(world, question)
        few = 1 if question.nests or world.rounds > 1 else max(2, self.stages)
        runs = (
            world.fixing(value, [count for count in counts if count])
            or world.fixing(value, range(1, 4 * self.stages + 4))[:2]
            or world.fixing(value, range(1, MOST_TRIPS + 1))[:few]
        )
        none = world.fixing(value, (0,)) if 0 in counts or not runs else []
        return none + runs

    def _trip_counts(self, world: World, question: Undecided) -> list[int]:
        """Up to twice around the ring and two more, in all the loops that nest together."""
        most = 2 * self.stages + 2
        if question.nests:
            counts = [1, 2, 3, most]
        elif world.rounds > 1:
            counts = [n for n in (1, 2, self.stages + 1) if n == 1 or n * world.rounds <= most]
        else:
            counts = list(range(1, most + 1))
        sizes = all(node.domain is Domain.positive for node in leaves(question.value))
        return counts if sizes else [0, *counts]

    def _scope(self, stopped_early: bool) -> tuple[str, ...]:
        sentences = [self.coverage.sentence(), ASSUMED]
        if stopped_early:
            sentences.append("the search ended at the first configuration that fails")
        return tuple(sentences)

    def _stopped(self, reason: str, source: Source | None = None) -> Analysis:
        findings = tuple(self.findings.values())
        return _incomplete(reason, source, self.kernel, findings, self._scope(False))


def _incomplete(
    reason: str,
    source: Source | None,
    kernel: str,
    findings: tuple[Finding, ...],
    scope: tuple[str, ...],
) -> Analysis:
    where = f" (line {source.line})" if source else ""
    gap = Finding(
        FindingKind.unsupported_operation,
        Severity.info,
        reason,
        source,
        level="ttgir",
        kernel=kernel,
    )
    return Analysis(
        AnalysisVerdict.incomplete, f"{reason}{where}", (*findings, gap), scope or (ASSUMED,)
    )


def _stages(module: Module) -> int:
    """The length of the longest ring of barriers, or of tiles where barriers form none."""
    types = [op.types for f in module.functions.values() for op in f.body.ops()]
    for ring in (_BARRIERS, _TILES):
        lengths = {int(n) for text in types for n in ring.findall(text)}
        longest = max((n for n in lengths if n <= LONGEST_RING), default=1)
        if longest > 1:
            return longest
    return 1


def _doubt(first: Event, second: Event) -> str:
    return (
        f"whether {first.accesses[0].name} of line {first.line} and"
        f" {second.accesses[0].name} of line {second.line} overlap cannot be told"
    )


def _listed(values: set[int]) -> str:
    """`1–8`, or `64, 128 and 192`, or the ends of a longer list."""
    ordered = sorted(values)
    if len(ordered) > 2 and ordered[-1] - ordered[0] == len(ordered) - 1:
        return f"{ordered[0]}–{ordered[-1]}"
    if len(ordered) > 6:
        return f"{ordered[0]}, {ordered[1]}, … {ordered[-1]} ({len(ordered)} values)"
    return ", ".join(str(value) for value in ordered)
