"""Says what a violation of a barrier protocol is, which line is to blame, and how it comes about.

Owns the judgement. The search finds that two accesses clash; here the trace before them is read to
tell an overtaken consumer from a reader that did not wait, and a wrong count from a cycle.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from runner.analysis.findings import Finding, FindingKind, Severity
from runner.analysis.protocol_events import Barrier, Event, Kind, Program, View
from runner.analysis.protocol_search import Fault, Phase, State, Step, Violation
from runner.analysis.protocol_story import barrier_name, deed, story
from runner.analysis.protocol_tally import ARRIVING, tally_of


@dataclass(frozen=True)
class Blame:
    """The kind of fault, and the step whose line is to blame for it."""

    kind: FindingKind
    event: Event
    message: str
    severity: Severity = Severity.error


def explain(
    program: Program, violation: Violation, assumed: dict[str, int], kernel: str
) -> Finding:
    """One violation as a finding: the line to blame, and the shortest way there in `evidence`."""
    blame = _Reader(program, violation).blame()
    return Finding(
        blame.kind,
        blame.severity,
        blame.message,
        blame.event.source,
        level="ttgir",
        kernel=kernel,
        evidence={
            "steps": [f"{i}. {text}" for i, text in enumerate(story(program, violation), 1)],
            "assumed": assumed,
        },
    )


class _Reader:
    """Reads one violation's trace backwards."""

    def __init__(self, program: Program, violation: Violation) -> None:
        self.program, self.violation = program, violation
        self.trace = violation.trace

    def blame(self) -> Blame:
        event, other = self.violation.event, self.violation.other
        match self.violation.fault:
            case Fault.stuck:
                return self._stuck()
            case Fault.unwritten:
                return self._unwritten(event)
            case Fault.conflict if other is not None:
                return self._conflict(event, other)
            case Fault.no_fence if other is not None:
                return self._no_fence(event, other)
            case Fault.over_arrival:
                return self._over_arrival(event)
            case Fault.busy_at_end:
                return self._busy_at_end(event)
            case _:
                return self._lifetime(event)

    # Accesses that are in no order

    def _conflict(self, event: Event, other: Event) -> Blame:
        if found := self._wrong_bytes(event) or self._wrong_bytes(other):
            return found
        if _overlap(event.writes, other.writes):
            return self._two_writers(event, other)
        written = _overlap(event.writes, other.reads)
        writer, reader = (event, other) if written else (other, event)
        if event is writer and reader.kind not in (Kind.read, Kind.write):
            return self._overwritten(writer, reader)
        return self._read_too_early(reader, writer)

    def _two_writers(self, event: Event, other: Event) -> Blame:
        return Blame(
            FindingKind.phase_overtaken,
            event,
            f"{deed(event)} while line {other.line} still fills {_shared(event, other)}:"
            " nothing orders the two writes",
        )

    def _overwritten(self, writer: Event, reader: Event) -> Blame:
        """A slot is written while a started product or copy still reads it."""
        place = _shared(writer, reader)
        early = self._released_early(writer, reader)
        if early is not None:
            return Blame(
                FindingKind.phase_overtaken,
                early,
                f"{early.barrier.name if early.barrier else 'a barrier'} is signalled before the"
                f" read of {place} that line {reader.line} started is done, so line"
                f" {writer.line} overwrites it",
            )
        return self._miscounted(writer, reader) or Blame(
            FindingKind.phase_overtaken,
            writer,
            f"{deed(writer)} while the read of {place} that line {reader.line} started"
            " may still run",
        )

    def _released_early(self, writer: Event, reader: Event) -> Event | None:
        """The arrival by the reader's partition, after the read began, that let the writer on."""
        if writer.process == reader.process:
            return None
        awaited = self._awaited(writer)
        for step in self._since(reader):
            event = step.event
            mine = event.process == reader.process and event.kind is Kind.arrive
            if mine and event.barrier in awaited:
                return event
        return None

    def _read_too_early(self, reader: Event, writer: Event) -> Blame:
        place = _shared(reader, writer)
        stale = self._stale_wait(reader, writer)
        if stale is not None:
            return Blame(
                FindingKind.phase_overtaken,
                stale,
                f"the wait passes on a stale phase of {barrier_name(stale)}, and line {reader.line}"
                f" reads {place} before line {writer.line} has filled it",
            )
        if writer.process != reader.process and self._unread(reader):
            early = self._released_unread(writer, reader)
            if early is not None:
                return Blame(
                    FindingKind.phase_overtaken,
                    early,
                    f"{barrier_name(early)} is signalled before line {reader.line} has read"
                    f" {place}, so line {writer.line} overwrites it",
                )
            return self._miscounted(writer, reader) or Blame(
                FindingKind.phase_overtaken,
                writer,
                f"{deed(writer)} before line {reader.line} of"
                f" {self._name(reader)} has read what was there",
            )
        return Blame(
            FindingKind.read_before_arrival,
            reader,
            f"{place} is read while line {writer.line} still fills it: nothing waits for that"
            f" {'copy' if writer.kind is not Kind.write else 'store'}",
        )

    def _released_unread(self, writer: Event, reader: Event) -> Event | None:
        """The arrival between the reader's wait and its read that let the writer on."""
        awaited = self._awaited(writer)
        for event in reversed(self.program.processes[reader.process].events[: reader.index]):
            if event.kind is Kind.wait:
                return None
            if event.kind is Kind.arrive and event.barrier in awaited:
                return event
        return None

    def _unwritten(self, event: Event) -> Blame:
        place = event.reads[0].name
        wait = self._last_wait(event)
        if wait is not None and self._guards(wait, event):
            return Blame(
                FindingKind.phase_overtaken,
                wait,
                f"the wait passes before any phase of {barrier_name(wait)} is complete, and line"
                f" {event.line} reads {place}, which nobody has filled yet",
            )
        return Blame(
            FindingKind.read_before_arrival,
            event,
            f"{place} is read, and nothing has been written to it",
        )

    def _stale_wait(self, reader: Event, writer: Event) -> Event | None:
        """The reader's wait for this write, if the phase that it passed on was an earlier one."""
        barriers = self._signals(writer)
        for event in reversed(self.program.processes[reader.process].events[: reader.index]):
            if event.kind is Kind.wait and event.barrier in barriers:
                return event if self._is_stale(event) else None
            if _touch(event, reader):
                return None  # an earlier access to the slot: the wait before it was for that
        return None

    def _is_stale(self, wait: Event) -> bool:
        """Whether a wait for data passed on the phase of the wait before it, or on none at all."""
        earlier = self.program.processes[wait.process].events[: wait.index + 1]
        parities = [e.parity for e in earlier if e.kind is Kind.wait and e.barrier == wait.barrier]
        if len(parities) > 1 and parities[-1] == parities[-2]:
            return True
        rounds = 1 + sum(a != b for a, b in itertools.pairwise(parities))
        step = next((step for step in self.trace if step.event is wait), None)
        phase = step.before.phases[step.barrier] if step else None
        return phase is not None and phase.completed < rounds

    def _signals(self, writer: Event) -> set[Barrier | None]:
        """The barriers by which others can learn that this write is done."""
        if writer.kind is Kind.tma_load:
            return {writer.barrier}
        later = self.program.processes[writer.process].events[writer.index :]
        return {event.barrier for event in later if event.kind in ARRIVING}

    def _unread(self, reader: Event) -> bool:
        """Whether the slot held something that the reader had not read when it was overwritten."""
        for step in reversed(self.trace):
            event = step.event
            if step.completes:
                continue
            if event.process == reader.process and _overlap(event.reads, reader.reads):
                return False
            if _overlap(event.writes, reader.reads) and not self._runs(event):
                return True
        return False

    def _runs(self, event: Event) -> bool:
        """Whether what the event started is not known to be done."""
        number = self.program.events().index(event)
        return number in self.violation.state.busy

    def _guards(self, wait: Event, reader: Event) -> bool:
        """Whether the barrier waited on is one that a writer of the reader's slot signals."""
        return any(
            _overlap(event.writes, reader.reads) and wait.barrier in self._signals(event)
            for event in self.program.events()
        )

    # Counts

    def _miscounted(self, writer: Event, reader: Event) -> Blame | None:
        """The writer went on too early because a barrier counts fewer arrivals than come."""
        for barrier in self._awaited(writer):
            tally = tally_of(self.program, barrier)
            mine = reader.process in tally.processes
            if mine and tally.init is not None and tally.arrivals > tally.expected:
                return Blame(FindingKind.arrival_mismatch, tally.init, tally.words(barrier))
        return None

    def _awaited(self, event: Event) -> list[Barrier]:
        """The barriers that the event's partition has waited for, the latest first."""
        earlier = self.program.processes[event.process].events[: event.index]
        waits = (e.barrier for e in reversed(earlier) if e.kind is Kind.wait)
        return list(dict.fromkeys(barrier for barrier in waits if barrier is not None))

    def _over_arrival(self, event: Event) -> Blame:
        assert event.barrier is not None
        tally = tally_of(self.program, event.barrier)
        if tally.arrivals <= tally.expected:
            return Blame(
                FindingKind.phase_overtaken,
                event,
                f"{deed(event)} for the next round while the phase of this one is not over",
            )
        shared = len(tally.lines) == 1  # by one line of several partitions: the count is wrong
        return Blame(
            FindingKind.arrival_mismatch,
            tally.init if shared and tally.init else event,
            f"{barrier_name(event)} gets an arrival more than its phase still expects;"
            f" {tally.words(event.barrier)}",
        )

    def _stuck(self) -> Blame:
        state = self.violation.state
        blocked = [event for event in self._blocked() if event.kind is Kind.wait]
        for event in blocked:
            if found := self._mismatch(event, state):
                return found
        if not blocked:
            return self._lifetime(self.violation.event)
        for event in blocked:
            if found := self._lapped(event, state):
                return found
        culprit = self._culprit(blocked)
        others = [event for event in blocked if event is not culprit]
        also = "".join(
            f"; {self._name(event)} waits for {barrier_name(event)} in line {event.line}"
            for event in others
        )
        return Blame(
            FindingKind.deadlock,
            culprit,
            f"{self._name(culprit)} waits for ever for the phase of parity {culprit.parity} of"
            f" {barrier_name(culprit)}{also}",
        )

    def _mismatch(self, wait: Event, state: State) -> Blame | None:
        """The blocked phase lacks, or has too many, arrivals or bytes in every round."""
        assert wait.barrier is not None
        tally, phase = tally_of(self.program, wait.barrier), self._phase(state, wait.barrier)
        if phase is None or tally.init is None:
            return None
        if phase.bytes and (found := self._wrong_bytes(wait)):
            return found
        started = phase.pending < phase.needed
        if started and tally.arrivals < tally.expected:
            return Blame(FindingKind.arrival_mismatch, tally.init, tally.words(wait.barrier))
        return None

    def _wrong_bytes(self, event: Event) -> Blame | None:
        """The event's barrier is told to expect other bytes than are copied."""
        if event.barrier is None:
            return None
        tally = tally_of(self.program, event.barrier)
        if tally.bytes_expected == tally.bytes_copied:
            return None
        return Blame(
            FindingKind.arrival_mismatch,
            tally.expect or tally.copy or event,
            f"{barrier_name(event)} is told to expect"
            f" {tally.bytes_expected // tally.rounds} bytes a round"
            f" and gets {tally.bytes_copied // tally.rounds}",
        )

    def _lapped(self, wait: Event, state: State) -> Blame | None:
        """The barrier has ended a phase that this partition has not waited for: a wrong parity."""
        assert wait.barrier is not None
        phase = self._phase(state, wait.barrier)
        earlier = self.program.processes[wait.process].events[: wait.index]
        passed = sum(e.kind is Kind.wait and e.barrier == wait.barrier for e in earlier)
        if phase is None or phase.completed <= passed:
            return None
        return Blame(
            FindingKind.phase_overtaken,
            wait,
            f"the wait is for parity {wait.parity} of {barrier_name(wait)}, but the phase that it"
            f" should see, number {passed}, has ended already: it passes on a stale phase or never",
        )

    def _culprit(self, blocked: list[Event]) -> Event:
        """Of the waits that hold each other up, the one that nobody would ever end; else that of
        the partition that would write what another one is to read: it has to go first."""
        for event in blocked:
            if not any(later.barrier == event.barrier for later in self._remaining()):
                return event
        nexts = [next((e for e in self._after(event) if e.accesses), None) for event in blocked]
        read = {view.buffer for event in nexts if event for view in event.reads}
        for event, access in zip(blocked, nexts, strict=True):
            if access and read & {view.buffer for view in access.writes}:
                return event
        return blocked[0]

    def _remaining(self) -> Iterator[Event]:
        for process, pc in zip(self.program.processes, self.violation.state.pcs, strict=True):
            for event in process.events[max(pc, 0) :]:
                if event.kind in ARRIVING:
                    yield event

    # Fences, lifetimes

    def _no_fence(self, reader: Event, writer: Event) -> Blame:
        what = "TMA" if reader.kind is Kind.tma_store else "the tensor core"
        place = _shared(reader, writer)
        same = reader.process == writer.process
        tail = (
            "; within one partition Triton 3.7.1 adds the fence itself, 3.6.0 does not"
            if same
            else "; across partitions the compiler does not add one"
        )
        return Blame(
            FindingKind.missing_proxy_fence,
            writer,
            f"{place} is written by ordinary stores and read by {what} in line {reader.line}"
            f" with no fence_async_shared between{tail}",
            Severity.warning if same else Severity.error,
        )

    def _busy_at_end(self, event: Event) -> Blame:
        if event.kind is Kind.tma_store:
            return Blame(
                FindingKind.phase_overtaken,
                event,
                f"the kernel can end while this copy still reads {event.reads[0].name}: nothing"
                " waits for it",
            )
        if stale := self._repeated_wait(event):
            return Blame(
                FindingKind.phase_overtaken,
                stale,
                f"the wait for parity {stale.parity} of {barrier_name(stale)} passes on the phase"
                " that the wait before it has seen already; nobody awaits the copy of line"
                f" {event.line}",
            )
        return Blame(
            FindingKind.barrier_lifetime,
            event,
            f"the kernel can end while this copy still fills {event.writes[0].name}: nothing"
            " waits for it, and the next block's shared memory is written to",
        )

    def _repeated_wait(self, copy: Event) -> Event | None:
        """A wait in the copy's ring with the parity of the wait before it on that barrier."""
        seen: dict[tuple[int, Barrier], int] = {}
        for step in self.trace:
            event = step.event
            if event.kind is not Kind.wait or event.barrier is None or copy.barrier is None:
                continue
            if event.barrier.buffer is not copy.barrier.buffer:
                continue
            key = (event.process, event.barrier)
            if seen.get(key) == event.parity:
                return event
            seen[key] = event.parity
        return None

    def _lifetime(self, event: Event) -> Blame:
        other = self.violation.other
        name, line = barrier_name(event), other.line if other else 0
        words = {
            Fault.uninitialised: f"{name} is used while it is not initialised",
            Fault.initialised_twice: f"{name} is initialised again without an invalidate",
            Fault.invalidated_in_use: f"{name} is invalidated while the copy of line {line} still"
            " has to complete it",
            Fault.stuck: f"{self._name(event)} cannot go on",
        }
        return Blame(FindingKind.barrier_lifetime, event, words[self.violation.fault])

    # Looking around in the trace

    def _name(self, event: Event) -> str:
        return self.program.processes[event.process].name

    def _after(self, event: Event) -> list[Event]:
        return self.program.processes[event.process].events[event.index + 1 :]

    def _blocked(self) -> list[Event]:
        pairs = zip(self.program.processes, self.violation.state.pcs, strict=True)
        return [p.events[pc] for p, pc in pairs if 0 <= pc < len(p.events)]

    def _last_wait(self, event: Event) -> Event | None:
        """The last wait of the event's partition that passed before it."""
        earlier = self.program.processes[event.process].events[: event.index]
        return next((e for e in reversed(earlier) if e.kind is Kind.wait), None)

    def _position(self, event: Event, start: int = 0) -> int | None:
        places = range(start, len(self.trace))
        return next((i for i in places if self.trace[i].event is event), None)

    def _since(self, event: Event) -> list[Step]:
        place = self._position(event)
        return [] if place is None else list(self.trace[place:])

    def _phase(self, state: State, barrier: Barrier) -> Phase | None:
        numbers: dict[Barrier, int] = {}
        for event in self.program.events():
            if event.barrier is not None:
                numbers.setdefault(event.barrier, len(numbers))
        return state.phases[numbers[barrier]]


def _overlap(some: tuple[View, ...], others: tuple[View, ...]) -> bool:
    return any(a.overlaps(b) for a in some for b in others)


def _touch(one: Event, two: Event) -> bool:
    return _overlap(one.accesses, two.accesses)


def _shared(one: Event, two: Event) -> str:
    """The name of the place that both touch."""
    pairs = ((a, b) for a in one.accesses for b in two.accesses)
    return next((a.name for a, b in pairs if a.overlaps(b)), "the slot")
