"""Scalars of a kernel that is unrolled without being run: known integers, and what is unknown.

Owns integer arithmetic on both, and the choice of values for unknowns that lead to each wanted
outcome. An unknown that is computed from parameters stays an expression over them, so that one
choice of a parameter is seen by every loop and branch that depends on it, in every partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

STEPS = 1024  # candidate values of one leaf
MAX_DEPTH = 60  # what is computed from more operations than that is an unknown of its own


class Domain(StrEnum):
    """Which values an unknown can take: a size is at least 1, any other number at least 0."""

    positive = "positive"
    natural = "natural"
    flag = "flag"


@dataclass(frozen=True, eq=False)
class Unknown:
    """A value that only a launch would tell. A leaf has no arithmetic below it.

    `key` is equal for equal expressions, so both partitions' copies of `cdiv(K, 64)` are one.
    """

    key: int
    op: str
    operands: tuple[int | Unknown, ...]
    label: str = ""
    domain: Domain = Domain.natural
    divisibility: int = 1
    width: int = 32
    depth: int = 0

    @property
    def leaf(self) -> bool:
        return self.op not in ARITHMETIC

    @property
    def smallest(self) -> int:
        return self.divisibility if self.domain is Domain.positive else 0

    def candidates(self) -> Iterator[int]:
        """Values to try; of sizes the round ones first, as most sizes are round."""
        if self.domain is Domain.flag:
            yield from (0, 1)
            return
        if self.domain is Domain.positive:
            for grain in (128, 64, 32, 16, 16_384):
                if grain % self.divisibility == 0:
                    yield from range(grain, 33 * grain, grain)
        step = self.divisibility
        yield from range(self.smallest, self.smallest + STEPS * step, step)


def leaf(
    identity: tuple[object, ...],
    label: str,
    domain: Domain = Domain.natural,
    divisibility: int = 1,
) -> Unknown:
    return Unknown(hash(identity), "leaf", (), label, domain, divisibility)


def program_id(axis: str) -> Unknown:
    return leaf(("program_id", axis), f"program_id({axis})")


def num_programs(axis: str) -> Unknown:
    return leaf(("num_programs", axis), f"num_programs({axis})", Domain.positive)


PROGRAMS = {program_id(axis).key: num_programs(axis).key for axis in "xyz"}


def expression(op: str, operands: tuple[int | Unknown, ...], width: int) -> int | Unknown:
    """`op` on the operands: an integer where all of them are known. Raises ZeroDivisionError."""
    known = [operand for operand in operands if isinstance(operand, int)]
    if len(known) == len(operands):
        return wrapped(ARITHMETIC[op](*known, *([width] if op in NEEDS_WIDTH else [])), width)
    keys = tuple(o.key if isinstance(o, Unknown) else ("int", o) for o in operands)
    depth = 1 + max(o.depth for o in operands if isinstance(o, Unknown))
    if depth > MAX_DEPTH:
        return leaf((op, width, keys), "")
    return Unknown(hash((op, width, keys)), op, operands, width=width, depth=depth)


def wrapped(value: int, width: int) -> int:
    """Two's complement of that many bits; one bit is 0 or 1."""
    value &= (1 << width) - 1
    if width > 1 and value >> (width - 1):
        value -= 1 << width
    return value


def _unsigned(value: int, width: int) -> int:
    return value & ((1 << width) - 1)


def _quotient(a: int, b: int) -> int:
    """Division that rounds towards zero, as the hardware does."""
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _trips(lower: int, upper: int, step: int) -> int:
    return max(0, -((lower - upper) // step)) if step > 0 else 0


PREDICATES: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "slt": lambda a, b: a < b,
    "sle": lambda a, b: a <= b,
    "sgt": lambda a, b: a > b,
    "sge": lambda a, b: a >= b,
    "ult": lambda a, b: _unsigned(a, 64) < _unsigned(b, 64),
    "ule": lambda a, b: _unsigned(a, 64) <= _unsigned(b, 64),
    "ugt": lambda a, b: _unsigned(a, 64) > _unsigned(b, 64),
    "uge": lambda a, b: _unsigned(a, 64) >= _unsigned(b, 64),
}
NEEDS_WIDTH = frozenset({"arith.divui", "arith.remui", "arith.shrui", "arith.maxui", "arith.minui"})
ARITHMETIC: dict[str, Callable[..., int]] = {
    "trips": _trips,
    "arith.addi": lambda a, b: a + b,
    "arith.subi": lambda a, b: a - b,
    "arith.muli": lambda a, b: a * b,
    "arith.divsi": _quotient,
    "arith.remsi": lambda a, b: a - b * _quotient(a, b),
    "arith.floordivsi": lambda a, b: a // b,
    "arith.ceildivsi": lambda a, b: -(-a // b),
    "arith.divui": lambda a, b, w: _unsigned(a, w) // _unsigned(b, w),
    "arith.remui": lambda a, b, w: _unsigned(a, w) % _unsigned(b, w),
    "arith.andi": lambda a, b: a & b,
    "arith.ori": lambda a, b: a | b,
    "arith.xori": lambda a, b: a ^ b,
    "arith.shli": lambda a, b: a << b if 0 <= b < 64 else 0,
    "arith.shrsi": lambda a, b: a >> min(_unsigned(b, 32), 63),
    "arith.shrui": lambda a, b, w: _unsigned(a, w) >> min(_unsigned(b, 32), 64),
    "arith.maxsi": max,
    "arith.minsi": min,
    "arith.maxui": lambda a, b, w: max(_unsigned(a, w), _unsigned(b, w)),
    "arith.minui": lambda a, b, w: min(_unsigned(a, w), _unsigned(b, w)),
    "arith.select": lambda c, a, b: a if c else b,
    "arith.extsi": lambda a: a,
    "arith.extui": lambda a: a,
    "arith.trunci": lambda a: a,
    "arith.index_cast": lambda a: a,
    **{f"arith.cmpi {name}": test for name, test in PREDICATES.items()},
}


def leaves(value: int | Unknown) -> list[Unknown]:
    """The unknown leaves of an expression, each once, in the order they are met."""
    found: dict[int, Unknown] = {}
    seen: set[int] = set()
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, int) or node.key in seen:
            continue
        seen.add(node.key)
        if node.leaf:
            found.setdefault(node.key, node)
        stack.extend(reversed(node.operands))
    return list(found.values())


def evaluate(value: int | Unknown, values: dict[int, int]) -> int | None:
    """The value of an expression whose leaves are given; None where it divides by zero."""
    return _evaluated(value, dict(values))


def _evaluated(value: int | Unknown, known: dict[int, int]) -> int | None:
    """The same; `known` gains every part, so that one which occurs often is worked out once."""
    if isinstance(value, int):
        return value
    if value.key not in known:
        operands = [_evaluated(operand, known) for operand in value.operands]
        parts = tuple(operand for operand in operands if operand is not None)
        if len(parts) < len(operands):
            return None
        try:
            result = expression(value.op, parts, value.width)
        except ZeroDivisionError:
            return None
        if isinstance(result, int):
            known[value.key] = result
    return known[value.key]


@dataclass(frozen=True)
class Assumption:
    """That a condition has an outcome; `leaves` are the keys of what it depends on."""

    condition: Unknown
    outcome: int
    leaves: frozenset[int]

    def holds(self, values: dict[int, int]) -> bool:
        return evaluate(self.condition, values) == self.outcome


@dataclass(frozen=True)
class World:
    """One choice of what a launch leaves open.

    `known` maps the key of a leaf, or of a condition, to its value. A condition that was taken one
    way is only `assumed`: its leaves stay open for later choices that respect it. `witness` are
    values of all leaves met so far that satisfy every assumption, so no world is impossible.
    `rounds` multiplies the trip counts chosen, for loops mostly nest.
    """

    known: dict[int, int] = field(default_factory=dict)
    assumed: tuple[Assumption, ...] = ()
    witness: dict[int, int] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    rounds: int = 1

    def assuming(self, value: Unknown, outcomes: Collection[int]) -> list[World]:
        """A world for each outcome that the expression can have, its leaves left open."""
        keys = frozenset(node.key for node in leaves(value))
        return [
            replace(
                self,
                known={**self.known, value.key: outcome},
                assumed=(*self.assumed, Assumption(value, outcome, keys)),
                witness=witness,
            )
            for outcome, witness in self._choices(value, outcomes)
        ]

    def fixing(self, value: Unknown, outcomes: Collection[int]) -> list[World]:
        """A world for each outcome that the expression can have, with its leaves chosen."""
        worlds = []
        for outcome, witness in self._choices(value, outcomes):
            chosen = {node.key: witness[node.key] for node in leaves(value)}
            labels = {node.label: chosen[node.key] for node in leaves(value) if node.label}
            worlds.append(
                replace(
                    self,
                    known={**self.known, **chosen},
                    witness=witness,
                    labels={**self.labels, **labels},
                    rounds=self.rounds * (max(outcome, 1) if value.op == "trips" else 1),
                )
            )
        return worlds

    def _choices(
        self, value: Unknown, outcomes: Collection[int]
    ) -> list[tuple[int, dict[int, int]]]:
        """Outcome and witness; one leaf moves at a time, the others stay where they were."""
        found: dict[int, dict[int, int]] = {}
        unknown = sorted(leaves(value), key=lambda node: node.domain is not Domain.positive)
        start = {**{node.key: node.smallest for node in unknown}, **self.witness}
        for node in unknown:
            moving = {node.key, PROGRAMS.get(node.key, node.key)}
            concerned = [each for each in self.assumed if moving & each.leaves]
            for candidate in itertools.chain(node.candidates(), (start[node.key],)):
                values = self._launched({**start, node.key: candidate})
                outcome = evaluate(value, values) if values else None
                if outcome is None or outcome not in outcomes or outcome in found:
                    continue
                if all(each.holds(values) for each in concerned):
                    found[outcome] = values
                if len(found) == len(outcomes):
                    break
        return sorted(found.items())

    def _launched(self, values: dict[int, int]) -> dict[int, int]:
        """The values with more programs than the program's number; nothing if that is fixed."""
        for program, programs in PROGRAMS.items():
            if program in values and values.get(programs, 1 << 31) <= values[program]:
                if programs in self.known:
                    return {}
                values[programs] = values[program] + 1
        return values
