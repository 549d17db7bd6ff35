"""Which accesses of a launch happen before which: by program order, acquire and release.

Programs of a launch run at the same time and in no order. The interpreter runs them one after the
other, so what it computes says nothing about races; the clocks here do. Knows no memory.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
FIRST_CAPACITY = 1024


class Accesses:
    """Every access so far, by number: its program, epoch and line, and whether it was atomic."""

    def __init__(self) -> None:
        self.count = 2  # 0 and 1 stand for "nobody" and "the host"
        self.table = np.zeros((4, FIRST_CAPACITY), dtype=np.int32)
        self.table[0, :2] = -1

    def add(self, program: int, epoch: int, line: int, atomic: bool) -> int:
        if self.count == self.table.shape[1]:
            self.table = np.concatenate([self.table, np.zeros_like(self.table)], axis=1)
        self.table[:, self.count] = (program, epoch, line, atomic)
        self.count += 1
        return self.count - 1

    def programs(self, accesses: Array) -> Array:
        return self.table[0][accesses]

    def epochs(self, accesses: Array) -> Array:
        return self.table[1][accesses]

    def line(self, access: int) -> int:
        return int(self.table[2, access])

    def lines(self, accesses: Array) -> Array:
        return self.table[2][accesses]

    def atomic(self, accesses: Array) -> Array:
        return self.table[3][accesses] != 0


class Order:
    """What the program at hand knows of the others; made anew for each launch."""

    def __init__(self, programs: int) -> None:
        self.epochs = np.ones(programs, dtype=np.int32)
        self.clocks: dict[Hashable, Array] = {}
        self.begin(0)

    def begin(self, program: int) -> None:
        self.program = program
        self.seen = np.zeros(len(self.epochs), dtype=np.int32)

    @property
    def epoch(self) -> int:
        return int(self.epochs[self.program])

    def synchronise(self, place: Hashable, acquires: bool, releases: bool) -> None:
        """An atomic at a place: take over what was released there, then release what is known."""
        clock = self.clocks.get(place)
        if acquires and clock is not None:
            self.seen = np.maximum(self.seen, clock)
        if releases:
            known = self.seen.copy()
            known[self.program] = self.epochs[self.program]
            self.clocks[place] = known if clock is None else np.maximum(clock, known)
            self.epochs[self.program] += 1

    def unordered(self, programs: Array, epochs: Array) -> Array:
        """Whether accesses of these programs, in these epochs, may come after what happens now."""
        return (programs != self.program) & (self.seen[programs] < epochs)

    def knows_everyone(self) -> bool:
        """Whether every program that has run so far is known to have released something."""
        others = np.arange(len(self.seen)) != self.program
        begun = np.arange(len(self.seen)) < self.program
        return bool((self.seen[others & begun] > 0).all())
