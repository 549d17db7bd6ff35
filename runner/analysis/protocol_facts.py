"""What is known of a program before it is searched: numbers, footprints, who touches what.

Owns everything that depends on the events alone and not on their order, each worked out once.
"""

from __future__ import annotations

from runner.analysis.protocol_events import (
    ASYNC_PROXY,
    COMPLETES,
    Barrier,
    Buffer,
    Event,
    Kind,
    Program,
    View,
)

_NEVER_PRIVATE = frozenset(
    {
        Kind.init,
        Kind.inval,
        Kind.expect,
        Kind.arrive,
        Kind.wait,
        Kind.tc_commit,
        Kind.cp_arrive,
        Kind.fork,
        Kind.rejoin,
    }
)
_STARTED_BY = {
    Kind.mma_wait: Kind.mma,
    Kind.store_wait: Kind.tma_store,
    Kind.tc_commit: Kind.tc_mma,
    Kind.cp_arrive: Kind.cp_async,
}


class Inexact(Exception):
    """Two views may or may not overlap, and the answer matters."""

    def __init__(self, first: Event, second: Event) -> None:
        super().__init__("views that may overlap")
        self.first, self.second = first, second


class Facts:
    """Events are numbered through all partitions; lists are indexed by that number.

    `footprint`: events that touch the same places in the same way share one, -1 touch nothing.
    `retires`: what is known to be done once the event, or its completion, is. `private`: nobody
    else can notice the event. `fenced`: buffers that TMA or the tensor core reads.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.events = program.events()
        self.first = [0]
        for process in program.processes:
            self.first.append(self.first[-1] + len(process.events))
        self.barriers: dict[Barrier, int] = {}
        for event in self.events:
            if event.barrier is not None:
                self.barriers.setdefault(event.barrier, len(self.barriers))
        self.barrier_of = [self.barriers[e.barrier] if e.barrier else -1 for e in self.events]
        self._footprints: dict[tuple[object, ...], int] = {}
        self.footprint = [self._footprint(event) for event in self.events]
        self._samples: dict[int, Event] = {}
        for event, number in zip(self.events, self.footprint, strict=True):
            self._samples.setdefault(number, event)
        self._conflicts: dict[tuple[int, int], bool] = {}
        self._writers: dict[int, list[Event]] = {}
        self.retires = [self._retires(event) for event in self.events]
        self._users = self._partitions()
        self.fenced = {
            view.buffer
            for event in self.events
            if event.kind in ASYNC_PROXY
            for view in event.reads
            if view.buffer.shared
        }
        self.private = [self._is_private(event) for event in self.events]

    def _footprint(self, event: Event) -> int:
        """Events that touch the same places in the same way share a number; -1 touch nothing."""
        if not event.reads and not event.writes:
            return -1
        tensor_core = event.process if event.kind is Kind.tc_mma else -1
        key = (event.reads, event.writes, tensor_core)
        return self._footprints.setdefault(key, len(self._footprints))

    def number(self, event: Event) -> int:
        return self.first[event.process] + event.index

    def _retires(self, event: Event) -> frozenset[int]:
        """Events of the same partition that are known to be done once this one is."""
        earlier = self.program.processes[event.process].events[: event.index]
        started = _STARTED_BY.get(event.kind)
        if event.kind is Kind.cp_wait:
            done = _committed(earlier, event.amount)
        elif started is not None:
            done = [e for e in earlier if e.kind is started]
            if event.kind in (Kind.mma_wait, Kind.store_wait) and event.amount:
                done = done[: -event.amount]
        else:
            done = [event] if event.kind is Kind.tma_load else []
        if event.kind in COMPLETES:
            done = [*done, event]
        return frozenset(self.number(e) for e in done)

    def _partitions(self) -> dict[object, set[int]]:
        """The partitions that touch each buffer and each barrier."""
        users: dict[object, set[int]] = {}
        for event in self.events:
            for view in event.accesses:
                users.setdefault(view.buffer, set()).add(event.process)
            if event.barrier is not None:
                users.setdefault(event.barrier, set()).add(event.process)
        return users

    def _is_private(self, event: Event) -> bool:
        """Whether nobody else can notice the step, so that it need not wait for its turn."""
        if event.kind in _NEVER_PRIVATE:
            return False
        touched: set[Buffer | Barrier] = {view.buffer for view in event.accesses}
        if event.barrier is not None:
            touched.add(event.barrier)
        if event.kind is Kind.fence:
            touched |= self.fenced
        for number in self.retires[self.number(event)]:
            touched |= {view.buffer for view in self.events[number].accesses}
        return all(self._users[one] <= {event.process} for one in touched)

    def conflict(self, one: int, two: int) -> bool:
        """Whether two footprints overlap with a write among them. Raises Inexact."""
        key = (one, two)
        if key not in self._conflicts:
            self._conflicts[key] = _clash(self._samples[one], self._samples[two])
        return self._conflicts[key]

    def writers_of(self, number: int) -> list[Event]:
        """Every event that writes where this footprint reads."""
        if number not in self._writers:
            reads = self._samples[number].reads
            self._writers[number] = [
                e for e in self.events if any(w.overlaps(r) for w in e.writes for r in reads)
            ]
        return self._writers[number]


def _committed(earlier: list[Event], outstanding: int) -> list[Event]:
    """The cp.async of all commit groups but the last `outstanding`."""
    groups: list[list[Event]] = [[]]
    for event in earlier:
        if event.kind is Kind.cp_async:
            groups[-1].append(event)
        elif event.kind is Kind.cp_commit:
            groups.append([])
    closed = groups[:-1]
    kept = closed[: len(closed) - outstanding] if outstanding else closed
    return [event for group in kept for event in group]


def covers(writes: tuple[View, ...], others: tuple[View, ...]) -> bool:
    return all(
        any(w.box is None and w.overlaps(o) and w.low <= o.low and o.high <= w.high for w in writes)
        for o in others
    )


def _clash(one: Event, two: Event) -> bool:
    if one.kind is Kind.tc_mma and two.kind is Kind.tc_mma and one.process == two.process:
        return False  # the tensor core works off one partition's products in order
    pairs = [(w, o) for w in one.writes for o in two.accesses]
    pairs += [(r, w) for r in one.reads for w in two.writes]
    overlapping = [(a, b) for a, b in pairs if a.overlaps(b)]
    if overlapping and not any(a.surely_overlaps(b) for a, b in overlapping):
        raise Inexact(one, two)
    return bool(overlapping)
