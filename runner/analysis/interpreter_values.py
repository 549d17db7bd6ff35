"""What the bits of an interpreted tensor mean: numbers from bits, and bits from numbers.

Triton's interpreter keeps bfloat16 and fp8 as unsigned integers and forgets that in most of its
arithmetic. Here they become float32 (every value of theirs is exact there), and results are rounded
back as the hardware does: to nearest even, fp8 saturating at its largest finite value. Knows no
operation and no memory.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from triton.runtime.interpreter import TensorHandle, _get_np_dtype

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Float8:
    """`finite` codes 0 … finite are the non-negative finite values; `nan` is a code, or None."""

    exponent_bits: int
    mantissa_bits: int
    bias: int
    finite: int
    infinity: int | None
    nan: int | None


FLOAT8 = {
    "fp8e4nv": Float8(4, 3, 7, 0x7E, None, 0x7F),
    "fp8e5": Float8(5, 2, 15, 0x7B, 0x7C, 0x7F),
    "fp8e4b8": Float8(4, 3, 8, 0x7F, None, 0x80),
    "fp8e5b16": Float8(5, 2, 16, 0x7F, None, 0x80),
    "fp8e4b15": Float8(4, 3, 15, 0x7F, None, None),
}


def storage_of(dtype: Any) -> np.dtype[Any]:
    """The numpy dtype that the interpreter keeps elements of a Triton type in."""
    scalar = dtype.scalar
    return np.dtype(np.uint64) if scalar.is_ptr() else _storage_of_number(scalar)


@functools.cache
def _storage_of_number(dtype: Any) -> np.dtype[Any]:
    return np.dtype(_get_np_dtype(dtype))


def is_narrow(dtype: Any) -> bool:
    """Whether the interpreter keeps values of this Triton dtype as raw bits."""
    name = getattr(dtype, "name", "")
    return name == "bf16" or name in FLOAT8


def numbers(handle: TensorHandle) -> Array:
    """The values of a handle, as a numpy array on which numpy computes what they mean."""
    dtype = handle.dtype.scalar
    if not is_narrow(dtype) or handle.data.dtype == np.bool_:
        return handle.data
    if dtype.name == "bf16":
        return (handle.data.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return _float8_values(dtype.name)[handle.data]


def handle_of(values: Array, dtype: Any, *, toward_zero: bool = False) -> TensorHandle:
    """Values rounded once to a Triton dtype. Truth values stay truth values, dtype int1."""
    values = np.asarray(values)
    if values.dtype == np.bool_ and not dtype.is_int1():
        values = values.astype(np.float32 if dtype.is_floating() else np.int8)
    if not is_narrow(dtype):
        return TensorHandle(_round_wide(values, dtype, toward_zero), dtype)
    single = _to_single(values)
    if dtype.name == "bf16":
        return TensorHandle(_bfloat16_bits(single, toward_zero), dtype)
    return TensorHandle(_float8_bits(single, FLOAT8[dtype.name], toward_zero), dtype)


def as_tf32(values: Array) -> Array:
    """float32 as the tensor cores read it in TF32: the low 13 bits of the mantissa are ignored."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def not_a_number(dtype: Any) -> Any:
    """A scalar of the dtype's storage that no honest result has: all bits ones."""
    storage = storage_of(dtype)
    if storage == np.bool_:
        return storage.type(True)
    return np.frombuffer(b"\xff" * storage.itemsize, dtype=storage)[0]


def to_integer(values: Array, storage: Any) -> Array:
    """Towards zero. What does not fit saturates, and NaN becomes 0, as cvt does."""
    limits = np.iinfo(storage)
    with np.errstate(all="ignore"):
        whole = np.trunc(values.astype(np.float64))
        inside = (whole > limits.min) & (whole < limits.max)
        fitting = np.where(inside, whole, 0.0).astype(storage)
    saturated = np.where(whole >= limits.max, limits.max, limits.min).astype(storage)
    saturated = np.where(np.isnan(whole), storage.type(0), saturated)
    return np.where(inside, fitting, saturated)


def _round_wide(values: Array, dtype: Any, toward_zero: bool) -> Array:
    storage = storage_of(dtype)
    with np.errstate(all="ignore"):
        rounded = values.astype(storage, copy=False)
        if not toward_zero or not dtype.is_floating() or values.dtype == storage:
            return rounded
        too_large = np.abs(rounded.astype(np.float64)) > np.abs(values.astype(np.float64))
        return np.where(too_large, np.nextafter(rounded, storage.type(0)), rounded)


def _to_single(values: Array) -> Array:
    """float32 for a later rounding: a float64 is rounded to odd, which does not round twice."""
    with np.errstate(all="ignore"):
        single = values.astype(np.float32)
    if values.dtype.kind == "f" and values.dtype.itemsize <= 4:
        return single
    wide = values.astype(np.float64)
    exact = (single.astype(np.float64) == wide) | ~np.isfinite(single)
    if exact.all():
        return single
    bits = np.atleast_1d(single).view(np.uint32).reshape(single.shape)
    away = np.abs(single.astype(np.float64)) > np.abs(wide)
    odd = (bits - away.astype(np.uint32)) | np.uint32(1)
    return np.where(exact, bits, odd).astype(np.uint32).view(np.float32)


def _bfloat16_bits(single: Array, toward_zero: bool) -> Array:
    bits = np.ascontiguousarray(single).view(np.uint32).reshape(single.shape)
    high = bits >> np.uint32(16)
    if not toward_zero:
        high = (bits + np.uint32(0x7FFF) + (high & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(single), np.uint32(0x7FFF), high).astype(np.uint16)


def _float8_bits(single: Array, format: Float8, toward_zero: bool) -> Array:
    """The nearest code of each value, the even one of two equally near ones."""
    ladder = _ladder(format)
    size = np.minimum(np.abs(single), ladder[-1])
    above = np.minimum(np.searchsorted(ladder, size), len(ladder) - 1)
    below = np.where(ladder[above] == size, above, np.maximum(above - 1, 0))
    up, down = ladder[above] - size, size - ladder[below]
    lower = (down < up) | ((down == up) & (below % 2 == 0)) | toward_zero
    code = np.where(lower, below, above).astype(np.uint8)
    negative = np.signbit(single) & ((code != 0) | (format.nan != 0x80))
    code = np.where(negative, code | np.uint8(0x80), code)
    invalid = np.isnan(single)
    return np.where(invalid, np.uint8(0x7F if format.nan is None else format.nan), code)


@functools.cache
def _ladder(format: Float8) -> Array:
    """The non-negative finite values, ascending; a value's place is its code."""
    return _magnitudes(format)[: format.finite + 1]


def _magnitudes(format: Float8) -> Array:
    code = np.arange(128)
    exponent, mantissa = code >> format.mantissa_bits, code & ((1 << format.mantissa_bits) - 1)
    fraction = mantissa / (1 << format.mantissa_bits)
    normal = np.ldexp(1.0 + fraction, exponent - format.bias)
    subnormal = np.ldexp(fraction, 1 - format.bias)
    return np.where(exponent == 0, subnormal, normal).astype(np.float32)


@functools.cache
def _float8_values(name: str) -> Array:
    format = FLOAT8[name]
    values = _magnitudes(format)
    if format.infinity is not None:
        values[format.infinity] = np.inf
        values[format.infinity + 1 :] = np.nan
    elif format.nan == 0x7F:
        values[0x7F] = np.nan
    both = np.concatenate([values, -values])
    if format.nan == 0x80:
        both[0x80] = np.nan
    return both
