"""Root-mean-square normalisation in Triton: y = x · w / √(mean x² + 1e-6) over rows, any M and N.

Idea: a row that fits the registers of one program is loaded once, squared, scaled and stored; short
rows share a program, which then loads w once for all of them. A longer row is walked twice in
chunks, backwards the second time, so that much of that read comes from L2.

Scope: contiguous row-major tensors of fp32, bf16 or fp16. Squares accumulate in fp32.
"""

import torch
import triton
import triton.language as tl

TILE = 8192  # elements a program of short rows works on
MAX_ROW = 32768  # longest row that is kept in registers
CHUNK = 8192  # elements of a longer row that are walked together
NUM_WARPS = 8
NUM_STAGES = 2  # chunks of a longer row in flight


@triton.jit
def rmsnorm_short_rows(x_ptr, w_ptr, y_ptr, M, N, ROWS: tl.constexpr, BLOCK_N: tl.constexpr):
    """ROWS whole rows per program, as one [ROWS, BLOCK_N] tile."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK_N)[None, :]
    mask = (row < M) & (column < N)
    offset = row.to(tl.int64) * N + column
    w = tl.load(w_ptr + column, mask=column < N, other=0.0, eviction_policy="evict_last")
    x = tl.load(x_ptr + offset, mask=mask, other=0.0, eviction_policy="evict_first").to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(x * x, axis=1)[:, None] / N + 1e-6)
    y = x * factor * w.to(tl.float32)
    tl.store(y_ptr + offset, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def rmsnorm_long_row(x_ptr, w_ptr, y_ptr, N, CHUNK: tl.constexpr, NUM_STAGES: tl.constexpr):
    """One row per program in two walks over chunks."""
    start = tl.program_id(0).to(tl.int64) * N
    column = tl.arange(0, CHUNK)
    squares = tl.zeros((CHUNK,), tl.float32)
    for first in tl.range(0, N, CHUNK, num_stages=NUM_STAGES):
        mask = first + column < N
        offset = start + first + column
        x = tl.load(x_ptr + offset, mask=mask, other=0.0, eviction_policy="evict_last")
        x = x.to(tl.float32)
        squares += x * x
    factor = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / N + 1e-6)
    # Backwards: the chunks read last are the likeliest to be in L2 still.
    end = (tl.cdiv(N, CHUNK) - 1) * CHUNK
    for back in tl.range(0, N, CHUNK, num_stages=NUM_STAGES):
        position = end - back + column
        mask = position < N
        offset = start + position
        x = tl.load(x_ptr + offset, mask=mask, other=0.0, eviction_policy="evict_first")
        w = tl.load(w_ptr + position, mask=mask, other=0.0, eviction_policy="evict_last")
        y = x.to(tl.float32) * factor * w.to(tl.float32)
        y = y.to(y_ptr.dtype.element_ty)
        tl.store(y_ptr + offset, y, mask=mask, eviction_policy="evict_first")


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x [M, N], w [N] → y [M, N] of the same dtype."""
    M, N = x.shape
    y = torch.empty_like(x)
    if N > MAX_ROW:
        rmsnorm_long_row[(M,)](x, w, y, N, CHUNK, NUM_STAGES, num_warps=NUM_WARPS)
        return y
    block = triton.next_power_of_2(N)
    rows = min(max(1, TILE // block), triton.next_power_of_2(M))
    warps = min(NUM_WARPS, max(1, rows * block // 256))  # at least 8 elements a thread
    rmsnorm_short_rows[(triton.cdiv(M, rows),)](x, w, y, M, N, rows, block, num_warps=warps)
    return y
