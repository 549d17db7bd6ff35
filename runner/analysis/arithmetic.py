"""Integer and pointer arithmetic of TTGIR on numpy arrays, one function per operation.

An operation that is not in OPERATIONS is not known, and what it gives stays unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.analysis.layouts import field, numbers

MAX_ELEMENTS = 1 << 17  # of one tensor; larger ones stay unknown
Value = Any  # an int, an integer array, a Pointer, or None where it is not known
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Pointer:
    """Element offsets into one argument; `size` are the bytes of an element."""

    base: str
    offset: Value
    size: int


def constant(rest: str) -> Value:
    text = rest.partition(" : ")[0].strip()
    text = text.removeprefix("dense<").rstrip(">")
    if text in ("true", "false"):
        return int(text == "true")
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _arithmetic(operate: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def evaluate(rest: str, shape: Shape, operands: list[Value]) -> Value:
        sizes = np.broadcast_shapes(*(np.shape(operand) for operand in operands))
        if math.prod(sizes) > MAX_ELEMENTS:
            return None
        return operate(operands[0], operands[1])

    return evaluate


def _quotient(first: Any, second: Any) -> Any:
    """Toward zero, as the hardware divides; by zero is an ArithmeticError, not a number."""
    if np.any(np.asarray(second) == 0):
        raise ZeroDivisionError
    return np.sign(first) * np.sign(second) * (np.abs(first) // np.abs(second))


def _compare(rest: str, shape: Shape, operands: list[Value]) -> Value:
    predicate = rest.split(",")[0].strip()
    return _COMPARISONS[predicate](operands[0], operands[1])


def _splat(rest: str, shape: Shape, operands: list[Value]) -> Value:
    return _each(operands[0], lambda value: np.full(shape, value, dtype=np.int64))


def _broadcast(rest: str, shape: Shape, operands: list[Value]) -> Value:
    return _each(operands[0], lambda value: np.broadcast_to(value, shape))


def _expand(rest: str, shape: Shape, operands: list[Value]) -> Value:
    return _each(operands[0], lambda value: np.asarray(value).reshape(shape))


def _transpose(rest: str, shape: Shape, operands: list[Value]) -> Value:
    order = numbers(field(r"order = array<i32: ([\d, ]+)>", rest))
    return _each(operands[0], lambda value: np.transpose(value, order))


def _each(value: Value, change: Callable[[Any], Any]) -> Value:
    if isinstance(value, Pointer):
        return Pointer(value.base, change(value.offset), value.size)
    return change(value)


def _advance(rest: str, shape: Shape, operands: list[Value]) -> Value:
    pointer, offset = operands
    return Pointer(pointer.base, pointer.offset + offset, pointer.size)


def _select(rest: str, shape: Shape, operands: list[Value]) -> Value:
    if any(isinstance(operand, Pointer) for operand in operands):
        return None
    return np.where(operands[0], operands[1], operands[2])


def _same(rest: str, shape: Shape, operands: list[Value]) -> Value:
    return operands[0]


_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    **{f"{sign}lt": lambda a, b: a < b for sign in "su"},
    **{f"{sign}le": lambda a, b: a <= b for sign in "su"},
    **{f"{sign}gt": lambda a, b: a > b for sign in "su"},
    **{f"{sign}ge": lambda a, b: a >= b for sign in "su"},
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "addi": lambda a, b: a + b,
    "subi": lambda a, b: a - b,
    "muli": lambda a, b: a * b,
    "divsi": _quotient,
    "divui": _quotient,
    "floordivsi": lambda a, b: a // b,
    "ceildivsi": lambda a, b: -(-a // b),
    "remsi": lambda a, b: a - _quotient(a, b) * b,
    "remui": lambda a, b: a - _quotient(a, b) * b,
    "minsi": np.minimum,
    "minui": np.minimum,
    "maxsi": np.maximum,
    "maxui": np.maximum,
    "andi": lambda a, b: a & b,
    "ori": lambda a, b: a | b,
    "xori": lambda a, b: a ^ b,
    "shli": lambda a, b: a << b,
    "shrsi": lambda a, b: a >> b,
    "shrui": lambda a, b: a >> b,
}
OPERATIONS: dict[str, Callable[[str, Shape, list[Value]], Value]] = {
    **{f"arith.{name}": _arithmetic(operate) for name, operate in _BINARY.items()},
    **{f"arith.{name}": _same for name in ("extsi", "extui", "trunci", "index_cast", "bitcast")},
    "arith.cmpi": _compare,
    "arith.select": _select,
    "ttg.convert_layout": _same,
    "tt.splat": _splat,
    "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand,
    "tt.reshape": _expand,
    "tt.trans": _transpose,
    "tt.addptr": _advance,
}
