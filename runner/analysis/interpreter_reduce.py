"""Reductions and scans of the interpreter, for any combine function and a whole tensor at a time.

Triton's own interpreter calls a combine function once per element; these call it log2(N) times,
pairing neighbours, as a GPU does. So the order of sums is that of a tree. Owns nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime.interpreter import TensorHandle

from runner.analysis.interpreter_values import Array, handle_of, numbers

Combine = Callable[..., Any]


def reduce(input: Any, axis: Any, combine_fn: Any, keep_dims: Any = False, **ignored: Any) -> Any:
    """tl.reduce: one tensor, or a tuple of tensors that are combined together."""
    values = input if isinstance(input, tuple) else (input,)
    rank = len(values[0].shape)
    axis, keep_dims = _plain(axis), bool(_plain(keep_dims))
    data = [value.handle.data for value in values]
    if axis is None:
        data, place = [array.reshape(-1) for array in data], 0
    else:
        place = _axis(axis, rank)
    dtypes = [value.dtype for value in values]
    while data[0].shape[place] > 1:
        data = _combine(
            combine_fn, _every_second(data, place, 0), _every_second(data, place, 1), dtypes
        )
    reduced = [_reduced(array, place, axis is None, keep_dims, rank) for array in data]
    results = tuple(_tensor(array, dtype) for array, dtype in zip(reduced, dtypes, strict=True))
    return results if isinstance(input, tuple) else results[0]


def associative_scan(
    input: Any, axis: Any, combine_fn: Any, reverse: Any = False, **ignored: Any
) -> Any:
    """tl.associative_scan: each element combined with all before it, in log2(N) steps."""
    values = input if isinstance(input, tuple) else (input,)
    place, reverse = _axis(_plain(axis), len(values[0].shape)), bool(_plain(reverse))
    dtypes = [value.dtype for value in values]
    data = [value.handle.data for value in values]
    if reverse:
        data = [np.flip(array, place) for array in data]
    length, distance = data[0].shape[place], 1
    while distance < length:
        earlier = [np.roll(array, distance, place) for array in data]
        combined = _combine(combine_fn, earlier, data, dtypes)
        late = _late(data[0].shape, place, distance)
        data = [np.where(late, new, old) for new, old in zip(combined, data, strict=True)]
        distance *= 2
    if reverse:
        data = [np.flip(array, place) for array in data]
    results = tuple(_tensor(array, dtype) for array, dtype in zip(data, dtypes, strict=True))
    return results if isinstance(input, tuple) else results[0]


def _combine(
    combine_fn: Any, first: list[Array], second: list[Array], dtypes: list[Any]
) -> list[Array]:
    """The combine function on whole tensors; its results keep the inputs' dtypes."""
    known = _known_function(combine_fn)
    if known is not None:
        a, b = (numbers(TensorHandle(group[0], dtypes[0])) for group in (first, second))
        with np.errstate(all="ignore"):
            return [handle_of(known(a, b), dtypes[0].scalar).data]
    shape = first[0].shape
    operands = [
        _tensor(array, dtype)
        for group in (first, second)
        for array, dtype in zip(group, dtypes, strict=True)
    ]
    answer = getattr(combine_fn, "fn", combine_fn)(*operands)
    answers = answer if isinstance(answer, tuple) else (answer,)
    return [
        np.broadcast_to(_data(value, dtype), shape)
        for value, dtype in zip(answers, dtypes, strict=True)
    ]


def _known_function(combine_fn: Any) -> Callable[[Array, Array], Array] | None:
    """The language's own sum, maximum and minimum, which need no interpreter."""
    table = {
        "_sum_combine": np.add,
        "_elementwise_max": np.fmax,
        "_elementwise_min": np.fmin,
    }
    name = getattr(getattr(combine_fn, "fn", None), "__name__", "")
    is_ours = name in table and combine_fn is getattr(tl.standard, name, None)
    return table[name] if is_ours else None


def _data(value: Any, dtype: Any) -> Array:
    if not isinstance(value, tl.core.tensor):
        value = tl.core.to_tensor(value)
    return value.to(dtype).handle.data if value.dtype != dtype else value.handle.data


def _tensor(array: Array, dtype: Any) -> Any:
    handle = TensorHandle(np.ascontiguousarray(array), dtype.scalar)
    if array.ndim == 0 or array.shape == ():
        return tl.core.tensor(TensorHandle(array.reshape(1), dtype.scalar), dtype.scalar)
    return tl.core.tensor(handle, tl.core.block_type(dtype.scalar, list(array.shape)))


def _every_second(data: list[Array], axis: int, first: int) -> list[Array]:
    index = (slice(None),) * axis + (slice(first, None, 2),)
    return [array[index] for array in data]


def _reduced(array: Array, axis: int, whole: bool, keep_dims: bool, rank: int) -> Array:
    if keep_dims:
        return array.reshape((1,) * rank) if whole else array
    return np.squeeze(array, axis)


def _late(shape: tuple[int, ...], axis: int, distance: int) -> Array:
    """Which elements have one `distance` before them."""
    along = [1] * len(shape)
    along[axis] = shape[axis]
    return (np.arange(shape[axis]) >= distance).reshape(along)


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise ValueError(f"axis {axis} is outside the {rank} dimensions of the tensor")
    return axis % rank


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value
