"""Softmax in Triton: y = exp(x − max) / Σ exp(x − max) over rows, for any M and N.

Idea: a row that fits the registers of one program is loaded once and stored once, and short rows
share a program, so that each has the same amount of work in flight. A longer row is walked twice in
chunks: once for maximum and sum together (online softmax), once backwards for the result, so that
much of the second read comes from L2. Exponentials are base 2, one instruction each.

Scope: contiguous row-major tensors of fp32, bf16 or fp16; a row of −inf alone gives NaN, as the
formula does.
"""

import torch
import triton
import triton.language as tl

TILE = 16384  # elements a program of short rows works on
MAX_ROW = 32768  # longest row that is kept in registers
CHUNK = 16384  # elements of a longer row that are walked together
NUM_WARPS = 16
NUM_STAGES = 2  # chunks of a longer row in flight

LOG2_E = tl.constexpr(1.4426950408889634)


@triton.jit
def softmax_short_rows(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """ROWS whole rows per program, as one [ROWS, BLOCK_N] tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK_N)[None, :]
    mask = (row < M) & (column < N)
    offset = row.to(tl.int64) * N + column
    x = tl.load(x_ptr + offset, mask=mask, other=-float("inf"), eviction_policy="evict_first")
    x = x.to(tl.float32)
    largest = tl.max(x, axis=1)[:, None]
    e = tl.exp2((x - largest) * LOG2_E)
    e = tl.where(mask, e, 0.0)  # a tile row beyond M is −inf − −inf
    y = e * (1.0 / tl.sum(e, axis=1)[:, None])
    tl.store(y_ptr + offset, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_long_row(x_ptr, y_ptr, N, CHUNK: tl.constexpr, NUM_STAGES: tl.constexpr):
    """One row per program in two walks over chunks."""
    start = tl.program_id(0).to(tl.int64) * N
    column = tl.arange(0, CHUNK)
    largest = tl.full((), -float("inf"), tl.float32)
    total = tl.zeros((CHUNK,), tl.float32)
    for first in tl.range(0, N, CHUNK, num_stages=NUM_STAGES):
        mask = first + column < N
        offset = start + first + column
        x = tl.load(x_ptr + offset, mask=mask, other=-float("inf"), eviction_policy="evict_last")
        x = x.to(tl.float32)
        higher = tl.maximum(largest, tl.max(x, axis=0))
        # A row that starts with −inf has no base yet; 0 keeps −inf − base from being NaN.
        base = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp2((largest - base) * LOG2_E) + tl.exp2((x - base) * LOG2_E)
        largest = higher
    factor = 1.0 / tl.sum(total, axis=0)
    # Backwards: the chunks read last are the likeliest to be in L2 still.
    end = (tl.cdiv(N, CHUNK) - 1) * CHUNK
    for back in tl.range(0, N, CHUNK, num_stages=NUM_STAGES):
        mask = end - back + column < N
        offset = start + end - back + column
        x = tl.load(x_ptr + offset, mask=mask, other=-float("inf"), eviction_policy="evict_first")
        y = tl.exp2((x.to(tl.float32) - largest) * LOG2_E) * factor
        y = y.to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + offset, y, mask=mask, eviction_policy="evict_first")


def run(x: torch.Tensor) -> torch.Tensor:
    """x [M, N] → y [M, N] of the same dtype."""
    M, N = x.shape
    y = torch.empty_like(x)
    if N > MAX_ROW:
        softmax_long_row[(M,)](x, y, N, CHUNK, NUM_STAGES, num_warps=NUM_WARPS)
        return y
    block = triton.next_power_of_2(N)
    rows = min(max(1, TILE // block), triton.next_power_of_2(M))
    warps = min(NUM_WARPS, max(1, rows * block // 256))  # at least 8 elements a thread
    softmax_short_rows[(triton.cdiv(M, rows),)](x, y, M, N, rows, block, num_warps=warps)
    return y
