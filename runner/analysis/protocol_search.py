"""Searches every interleaving of a kernel's partitions, breadth first.

Owns the semantics of mbarriers and of asynchronous operations, and the order of the search. What a
violation means to a reader is the business of `protocol_explain`.

Two things keep the search small without losing a violation. A step that nobody else can notice
is taken at once. A copy completes only when somebody is about to use its barrier: completing it
earlier changes nothing that could be seen, and until then its slot counts as busy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from runner.analysis.protocol_events import ASYNC_PROXY, COMPLETES, STARTS, Event, Kind, Program
from runner.analysis.protocol_facts import Facts, covers


class Fault(StrEnum):
    """What the search can run into."""

    stuck = "stuck"  # nobody can go on, and not all are done
    conflict = "conflict"  # two accesses to one slot, at least one a write, in no order
    unwritten = "unwritten"  # a slot is read that nobody has written
    no_fence = "no_fence"  # an asynchronous read of ordinary stores without a fence
    over_arrival = "over_arrival"  # more arrivals than the phase still expects
    uninitialised = "uninitialised"  # a barrier that is not, or no longer, initialised
    initialised_twice = "initialised_twice"
    invalidated_in_use = "invalidated_in_use"
    busy_at_end = "busy_at_end"  # the kernel ends while a copy still runs


class Phase(NamedTuple):
    """An mbarrier: arrivals a phase needs, phases completed, arrivals and bytes still missing."""

    needed: int
    completed: int
    pending: int
    bytes: int


class State(NamedTuple):
    """`pcs`: next event of each partition, -1 before it starts. `busy`: started, not known done.

    `unfenced`: ordinary writes that no fence has followed yet.
    """

    pcs: tuple[int, ...]
    phases: tuple[Phase | None, ...]
    busy: frozenset[int]
    unfenced: frozenset[int]


@dataclass(frozen=True)
class Step:
    """One step of a trace; `completes` tells the end of a copy from its start.

    `barrier` is the place of the event's barrier among the phases, -1 where it has none.
    """

    event: Event
    barrier: int
    completes: bool
    before: State
    after: State


@dataclass(frozen=True)
class Violation:
    """`event` cannot be done as it stands, because of `other` where there is one.

    `trace` are the steps before it, the fewest that lead there; `state` is where they end.
    """

    fault: Fault
    event: Event
    other: Event | None
    trace: tuple[Step, ...]
    state: State


@dataclass(frozen=True)
class Outcome:
    """All violations of one world; the search goes on only after a missing fence."""

    violations: tuple[Violation, ...]
    states: int
    truncated: bool


class _Found(Exception):
    def __init__(self, fault: Fault, event: Event, other: Event | None = None) -> None:
        super().__init__(fault)
        self.fault, self.event, self.other = fault, event, other


_Move = tuple[int, bool]  # an event's number, and whether it completes rather than starts


class Search:
    """One world's state space. `states_max` bounds it; Outcome says when it did.

    `reduced` false searches every order of every step, to test that the reductions lose nothing.
    """

    def __init__(self, program: Program, states_max: int, reduced: bool = True) -> None:
        self.program, self.states_max, self.reduced = program, states_max, reduced
        self.facts = Facts(program)
        self.events = self.facts.events

    def run(self) -> Outcome:
        start = State(
            (0, *(-1 for _ in self.program.processes[1:])),
            (None,) * len(self.facts.barriers),
            frozenset(),
            frozenset(),
        )
        self.parents: dict[State, tuple[State, _Move] | None] = {start: None}
        self.missing_fences: dict[tuple[int, int], Violation] = {}
        queue = deque([start])
        while queue:
            if len(self.parents) > self.states_max:
                return self._outcome(None, truncated=True)
            state = queue.popleft()
            try:
                self._expand(state, queue)
            except _Found as found:
                return self._outcome(self._violation(found, state))
        return self._outcome(None)

    def _outcome(self, fatal: Violation | None, truncated: bool = False) -> Outcome:
        fatal_part = [fatal] if fatal else []
        violations = (*self.missing_fences.values(), *fatal_part)
        return Outcome(violations, len(self.parents), truncated)

    def _violation(self, found: _Found, state: State) -> Violation:
        return Violation(found.fault, found.event, found.other, self._trace(state), state)

    def _trace(self, state: State) -> tuple[Step, ...]:
        steps = []
        after = state
        while (parent := self.parents[after]) is not None:
            before, (number, completes) = parent
            event = self.events[number]
            steps.append(Step(event, self.facts.barrier_of[number], completes, before, after))
            after = before
        return tuple(reversed(steps))

    def _expand(self, state: State, queue: deque[State]) -> None:
        nexts = [
            self.facts.first[p] + pc
            for p, pc in enumerate(state.pcs)
            if 0 <= pc < self.facts.first[p + 1] - self.facts.first[p]
        ]
        self._check_races(nexts)
        moves = list(self._moves(state, nexts))
        if not moves or not nexts:
            self._check_end(state, nexts)
        for move in moves:
            after = self._apply(state, move)
            if after not in self.parents:
                self.parents[after] = (state, move)
                queue.append(after)

    def _check_races(self, nexts: list[int]) -> None:
        """Two ordinary accesses that are both next are in no order."""
        ordinary = [n for n in nexts if self.events[n].kind in (Kind.read, Kind.write)]
        for i, one in enumerate(ordinary):
            for two in ordinary[i + 1 :]:
                if self.facts.conflict(self.facts.footprint[one], self.facts.footprint[two]):
                    first, second = self.events[one], self.events[two]
                    if first.kind is Kind.write:
                        first, second = second, first
                    raise _Found(Fault.conflict, first, second)

    def _check_end(self, state: State, nexts: list[int]) -> None:
        if nexts:
            raise _Found(Fault.stuck, self.events[nexts[0]])
        running = [self.events[n] for n in sorted(state.busy)]
        copies = [e for e in running if e.kind in (Kind.tma_load, Kind.tma_store, Kind.cp_async)]
        if copies:
            raise _Found(Fault.busy_at_end, copies[0])

    def _moves(self, state: State, nexts: list[int]) -> Iterator[_Move]:
        private = [number for number in nexts if self.facts.private[number]]
        if self.reduced and private:
            yield private[0], False
            return
        for number in self._due(state, nexts):
            yield number, True
        for number in nexts:
            if self._enabled(state, self.events[number], self.facts.barrier_of[number]):
                yield number, False

    def _due(self, state: State, nexts: list[int]) -> list[int]:
        """What may complete now: it runs, and somebody is about to use the barrier it signals.

        Commits of one partition complete in the order in which they were made, so that one which
        is due makes the earlier ones due, and only the first of them may go.
        """
        used = {self.facts.barrier_of[number] for number in nexts}
        if not self.reduced:
            used = set(self.facts.barrier_of)
        running = [n for n in sorted(state.busy) if self.events[n].kind in COMPLETES]
        due = [n for n in running if self.facts.barrier_of[n] in used]
        commits = [n for n in running if self.events[n].kind is Kind.tc_commit]
        for number in [n for n in due if n in commits]:
            process = self.events[number].process
            first = next(n for n in commits if self.events[n].process == process)
            due = [first if n == number else n for n in due]
        return list(dict.fromkeys(due))

    def _enabled(self, state: State, event: Event, barrier: int) -> bool:
        if event.kind is Kind.wait:
            phase = state.phases[barrier]
            return phase is None or phase.completed & 1 != event.parity
        if event.kind is Kind.rejoin:
            return all(
                state.pcs[child] == self.facts.first[child + 1] - self.facts.first[child]
                for child in event.children
            )
        return True

    # One step

    def _apply(self, state: State, move: _Move) -> State:
        number, completes = move
        event = self.events[number]
        phases = self._phases(state, event, self.facts.barrier_of[number], completes)
        if completes:
            return state._replace(phases=phases, busy=state.busy - self.facts.retires[number])
        if self.facts.footprint[number] >= 0:
            self._check_access(state, event, self.facts.footprint[number])
        pcs = list(state.pcs)
        pcs[event.process] += 1
        for child in event.children if event.kind is Kind.fork else ():
            pcs[child] = 0
        return State(
            tuple(pcs), phases, self._busy(state, event, number), self._unfenced(state, event)
        )

    def _busy(self, state: State, event: Event, number: int) -> frozenset[int]:
        if event.kind in COMPLETES or event.kind in STARTS:
            return state.busy | {number}
        return state.busy - self.facts.retires[number]

    def _phases(
        self, state: State, event: Event, barrier: int, completes: bool
    ) -> tuple[Phase | None, ...]:
        if barrier < 0 or (event.kind in (Kind.tma_load, Kind.tc_commit) and not completes):
            if barrier >= 0 and state.phases[barrier] is None:
                raise _Found(Fault.uninitialised, event)
            return state.phases
        old = state.phases[barrier]
        new = self._phase(state, event, old, completes)
        if new == old:
            return state.phases
        return (*state.phases[:barrier], new, *state.phases[barrier + 1 :])

    def _phase(
        self, state: State, event: Event, old: Phase | None, completes: bool
    ) -> Phase | None:
        """The barrier after a step. Raises _Found where the step may not be done."""
        if event.kind is Kind.init:
            if old is not None:
                raise _Found(Fault.initialised_twice, event)
            return Phase(event.amount, 0, event.amount, 0)
        if old is None:
            raise _Found(Fault.uninitialised, event)
        if event.kind is Kind.inval:
            self._check_unused(state, event)
            return None
        if event.kind is Kind.wait:
            return old
        if event.kind is Kind.cp_arrive and not completes:
            return old if event.counted else old._replace(pending=old.pending + event.amount)
        arrivals, size = contribution(event)
        if old.pending < arrivals:
            raise _Found(Fault.over_arrival, event)
        pending, missing = old.pending - arrivals, old.bytes + size
        if pending == 0 and missing == 0:
            return Phase(old.needed, old.completed + 1, old.needed, 0)
        return old._replace(pending=pending, bytes=missing)

    def _check_unused(self, state: State, event: Event) -> None:
        for number in state.busy:
            if self.events[number].barrier == event.barrier:
                raise _Found(Fault.invalidated_in_use, event, self.events[number])

    def _check_access(self, state: State, event: Event, footprint: int) -> None:
        for number in sorted(state.busy):
            other = self.facts.footprint[number]
            if other >= 0 and self.facts.conflict(footprint, other):
                raise _Found(Fault.conflict, event, self.events[number])
        if event.reads:
            written = self.facts.writers_of(footprint)
            if not any(state.pcs[w.process] > w.index for w in written):
                raise _Found(Fault.unwritten, event)
        if event.kind in ASYNC_PROXY and event.reads:
            self._check_fence(state, event)

    def _check_fence(self, state: State, event: Event) -> None:
        for number in state.unfenced:
            other = self.events[number]
            shared = (view for view in event.reads if view.buffer.shared)
            if any(w.overlaps(r) for r in shared for w in other.writes):
                key = (other.line, event.line)
                if key not in self.missing_fences:
                    found = _Found(Fault.no_fence, event, other)
                    self.missing_fences[key] = self._violation(found, state)

    def _unfenced(self, state: State, event: Event) -> frozenset[int]:
        """Ordinary writes, and cp.async once it is done, need a fence before TMA or wgmma read."""
        if event.kind is Kind.fence:
            return state.unfenced & state.busy
        if not event.writes or not any(view.buffer in self.facts.fenced for view in event.writes):
            return state.unfenced
        kept = frozenset(
            number
            for number in state.unfenced
            if not covers(event.writes, self.events[number].writes)
        )
        if event.kind in (Kind.write, Kind.cp_async):
            return kept | {self.facts.number(event)}
        return kept


def contribution(event: Event) -> tuple[int, int]:
    """Arrivals and change of missing bytes that a step brings to its barrier."""
    if event.kind is Kind.expect:
        return 1, event.amount
    if event.kind is Kind.tma_load:
        return 0, -event.amount
    if event.kind is Kind.tc_commit:
        return 1, 0
    return event.amount, 0
