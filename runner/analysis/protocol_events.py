"""What partitions do to barriers and shared buffers: the words that unrolling and search share.

Owns events, buffers and views of them. It neither reads IR nor searches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from runner.analysis.findings import Source


class Kind(StrEnum):
    """What one step of a partition does.

    tma_load, tma_store, mma, cp_async and tc_mma only start something; what they touch stays busy
    until a wait of the same partition, or the barrier that they complete, says otherwise.
    """

    init = "init"
    inval = "inval"
    expect = "expect"
    arrive = "arrive"
    wait = "wait"
    read = "read"
    write = "write"
    fence = "fence"
    tma_load = "tma_load"
    tma_store = "tma_store"
    store_wait = "store_wait"
    mma = "mma"
    mma_wait = "mma_wait"
    cp_async = "cp_async"
    cp_commit = "cp_commit"
    cp_wait = "cp_wait"
    cp_arrive = "cp_arrive"
    tc_mma = "tc_mma"
    tc_commit = "tc_commit"
    fork = "fork"
    rejoin = "rejoin"


STARTS = frozenset({Kind.tma_load, Kind.tma_store, Kind.mma, Kind.cp_async, Kind.tc_mma})
COMPLETES = frozenset({Kind.tma_load, Kind.cp_arrive, Kind.tc_commit})  # complete a barrier later
ASYNC_PROXY = frozenset({Kind.tma_load, Kind.tma_store, Kind.mma, Kind.tc_mma})


@dataclass(frozen=True)
class Buffer:
    """One allocation; `name` as the candidate calls it, `identity` tells equal names apart."""

    identity: int
    name: str
    source: Source | None
    stages: int
    shared: bool = True  # tensor memory otherwise


@dataclass(frozen=True)
class View:
    """Bits `low` to `high` of a buffer; `box` narrows it to a rectangle of the tile they hold.

    `exact` false: the true footprint may be smaller. `slot` is the index for people to read.
    """

    buffer: Buffer
    low: int
    high: int
    shape: tuple[int, ...]
    bits: int
    box: tuple[tuple[int, int], ...] | None = None
    exact: bool = True
    slot: str = ""

    @property
    def name(self) -> str:
        return self.buffer.name + self.slot

    @property
    def size_bytes(self) -> int:
        size = self.bits
        for length in self.shape:
            size *= length
        return size // 8

    def overlaps(self, other: View) -> bool:
        if self.buffer is not other.buffer or self.low >= other.high or other.low >= self.high:
            return False
        if self.box and other.box and (self.low, self.high) == (other.low, other.high):
            return all(a < d and c < b for (a, b), (c, d) in zip(self.box, other.box, strict=True))
        return True

    def surely_overlaps(self, other: View) -> bool:
        return self.exact and other.exact


@dataclass(frozen=True)
class Barrier:
    """One mbarrier: an element of a buffer of them."""

    buffer: Buffer
    index: int

    @property
    def name(self) -> str:
        return f"{self.buffer.name}[{self.index}]" if self.buffer.stages > 1 else self.buffer.name


@dataclass(eq=False)
class Event:
    """One step. `amount` is a count of arrivals, bytes, or how many may stay outstanding.

    `counted` false: arrivals that first raise the count by as many, as cp.async can.
    """

    kind: Kind
    source: Source | None
    barrier: Barrier | None = None
    reads: tuple[View, ...] = ()
    writes: tuple[View, ...] = ()
    amount: int = 0
    parity: int = 0
    counted: bool = True
    children: tuple[int, ...] = ()
    process: int = 0
    index: int = 0

    @property
    def accesses(self) -> tuple[View, ...]:
        return self.reads + self.writes

    @property
    def line(self) -> int:
        return self.source.line if self.source else 0


@dataclass
class Process:
    """A partition in one world: all that it does, in order."""

    name: str
    warps: int = 0  # 0: as many as the kernel
    events: list[Event] = field(default_factory=list)

    def add(self, event: Event, process: int) -> None:
        event.process, event.index = process, len(self.events)
        self.events.append(event)


@dataclass
class Program:
    """All partitions of one kernel in one world; process 0 starts and forks the others."""

    processes: list[Process]
    trips: dict[str, set[int]]

    def events(self) -> list[Event]:
        return [event for process in self.processes for event in process.events]
