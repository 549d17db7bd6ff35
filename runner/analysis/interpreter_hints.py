"""Hints to the compiler, held against the values they are given: multiple_of and its siblings.

Owns what each of the three hints claims. The compiler uses them to make an access wider, up to
16 elements; so up to there they are checked, and a claim that goes further is not doubted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl

from runner.analysis.address_space import AddressSpace
from runner.analysis.interpreter_values import Array
from runner.analysis.memory_sightings import NoteKind

WIDEST = 16  # elements of one access: 16 bytes of 1-byte elements
Broken = Callable[[Array, int, int], bool]


def checked(name: str, broken: Broken, memory: AddressSpace) -> Any:
    """The hint `name` for kernels: gives back what it is given, and notes where it is not so."""

    def hint(input: Any, values: Any, **ignored: Any) -> Any:
        if not isinstance(input, tl.tensor):
            return input  # the counter of a loop
        claims = [_plain(value) for value in _listed(values)]
        if len(claims) != max(1, len(input.shape)):
            raise ValueError(f"tl.{name} needs a value for each dimension of {input.shape}")
        whole, unit = _whole_numbers(input)
        if whole is None:
            return input
        for axis, claim in enumerate(claims):
            if broken(np.moveaxis(whole, axis, -1), math.gcd(claim, WIDEST), unit):
                memory.note(
                    NoteKind.hint, f"tl.{name}(…, {claim}) does not hold in dimension {axis}"
                )
        return input

    return hint


def _not_multiples(values: Array, divisor: int, unit: int) -> bool:
    """Of neighbours that count up the first is meant: its divisibility is what makes them wide."""
    first = np.ones(values.shape, dtype=bool)
    first[..., 1:] = np.diff(values, axis=-1) != unit
    return bool((values[first] % divisor != 0).any())


def _not_contiguous(values: Array, length: int, unit: int) -> bool:
    return bool((_within_groups(values, length) != unit).any())


def _not_constant(values: Array, length: int, unit: int) -> bool:
    return bool((_within_groups(values, length) != 0).any())


def _within_groups(values: Array, length: int) -> Array:
    """By how much neighbours differ that lie in one group of `length`."""
    length = math.gcd(length, values.shape[-1])
    return np.diff(values.reshape(*values.shape[:-1], -1, length), axis=-1)


BROKEN: dict[str, Broken] = {
    "multiple_of": _not_multiples,
    "max_contiguous": _not_contiguous,
    "max_constancy": _not_constant,
}


def _whole_numbers(input: Any) -> tuple[Array | None, int]:
    """The values as integers and how far neighbours lie apart: 1, or an element's bytes."""
    data, scalar = input.handle.data, input.dtype.scalar
    if scalar.is_ptr():
        return data.astype(np.int64), max(1, scalar.element_ty.primitive_bitwidth // 8)
    return (data.astype(np.int64), 1) if data.dtype.kind in "iu" else (None, 1)


def _listed(values: Any) -> Any:
    values = _plain(values)
    return values if isinstance(values, list | tuple) else [values]


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value
