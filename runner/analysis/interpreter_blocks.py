"""Block pointers and tensor descriptors: the addresses of a tile, and which of them lie inside.

Owns the arithmetic of tiles alone; `interpreter` reads and writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from triton.runtime import interpreter as original
from triton.runtime.interpreter import TensorHandle

from runner.analysis.interpreter_values import Array, handle_of, storage_of

ir = original._ir


def tile(
    block: Any, offsets: Sequence[Array], checked: Sequence[int] | range
) -> tuple[Array, Array]:
    """Addresses of a block pointer's or descriptor's tile, and which lie inside its shape."""
    size = max(1, block.base.get_element_ty().primitive_bitwidth // 8)
    rank = len(block.block_shape)
    elements = np.zeros(block.block_shape, dtype=np.int64)
    inside = np.ones(block.block_shape, dtype=bool)
    for axis in range(rank):
        along = [1] * rank
        along[axis] = block.block_shape[axis]
        place = int(offsets[axis].item()) + np.arange(block.block_shape[axis], dtype=np.int64)
        place = place.reshape(along)
        elements = elements + place * int(block.strides[axis].data.item())
        if axis in checked:
            inside = inside & (place >= 0) & (place < int(block.shape[axis].data.item()))
    return _addresses(block, elements, size), inside


def rows(desc: Any, places: Array, column: Array) -> tuple[Array, Array]:
    """As `_tile`, for a descriptor whose rows are given one by one."""
    size = max(1, desc.base.get_element_ty().primitive_bitwidth // 8)
    down = places.astype(np.int64)[:, None]
    right = int(column.item()) + np.arange(desc.block_shape[-1], dtype=np.int64)[None, :]
    strides, shape = ([int(n.data.item()) for n in ns] for ns in (desc.strides, desc.shape))
    inside = (down >= 0) & (down < shape[0]) & (right >= 0) & (right < shape[1])
    return _addresses(desc, down * strides[0] + right * strides[1], size), inside


def _addresses(block: Any, elements: Array, size: int) -> Array:
    base = block.base.data.reshape(-1)[0]
    return np.uint64(base) + (elements * size).astype(np.uint64)


def padding(option: Any, block: Any, shape: tuple[int, ...]) -> TensorHandle:
    """What lanes outside the shape read: zeros, or NaN where asked for."""
    dtype = block.base.get_element_ty()
    storage = storage_of(dtype)
    if option == ir.PADDING_OPTION.PAD_NAN:
        fill = handle_of(np.array([np.nan], dtype=np.float32), dtype).data[0]
        return TensorHandle(np.full(shape, fill, dtype=storage), dtype)
    return TensorHandle(np.zeros(shape, dtype=storage), dtype)
