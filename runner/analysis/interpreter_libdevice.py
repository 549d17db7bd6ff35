"""The functions of NVIDIA's libdevice that kernels call most, as numpy computes them.

Owns the table of names. A function that is missing here is not guessed: the simulation says so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Function = Callable[..., Any]


def function_of(symbol: str) -> Function | None:
    """The function behind a symbol such as `__nv_tanhf` or `__nv_tanh`; None if it is unknown."""
    name = symbol.removeprefix("__nv_").removeprefix("fast_")
    return _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))


def _elementwise(function: Callable[[float], float]) -> Function:
    return np.vectorize(function, otypes=[np.float64])


def _power(base: Any, exponent: Any) -> Any:
    return np.power(base, np.asarray(exponent).astype(np.asarray(base).dtype))


_FUNCTIONS: dict[str, Function] = {
    "abs": np.abs,
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "ceil": np.ceil,
    "copysign": np.copysign,
    "cos": np.cos,
    "cosh": np.cosh,
    "cospi": lambda x: np.cos(np.pi * x),
    "erf": _elementwise(math.erf),
    "erfc": _elementwise(math.erfc),
    "exp": np.exp,
    "exp10": lambda x: np.power(np.asarray(x).dtype.type(10), x),
    "exp2": np.exp2,
    "expm1": np.expm1,
    "fabs": np.abs,
    "fdim": lambda x, y: np.where(np.isnan(x) | np.isnan(y), np.nan, np.fmax(x - y, 0)),
    "fma": lambda x, y, z: np.float64(x) * np.float64(y) + np.float64(z),
    "fmax": np.fmax,
    "fmin": np.fmin,
    "fmod": np.fmod,
    "floor": np.floor,
    "hypot": np.hypot,
    "isinf": np.isinf,
    "isnan": np.isnan,
    "isfinited": np.isfinite,
    "finitef": np.isfinite,
    "ldexp": np.ldexp,
    "log": np.log,
    "log10": np.log10,
    "log1p": np.log1p,
    "log2": np.log2,
    "nearbyint": np.rint,
    "pow": _power,
    "powi": _power,
    "rcp": lambda x: 1 / x,
    "rint": np.rint,
    "round": lambda x: np.trunc(x + np.copysign(np.asarray(x).dtype.type(0.5), x)),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "sinh": np.sinh,
    "sinpi": lambda x: np.sin(np.pi * x),
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "trunc": np.trunc,
}
