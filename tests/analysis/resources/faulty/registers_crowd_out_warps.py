"""softmax 8192x16384-bf16: low_occupancy. Sums fill the registers, two bytes are in flight."""

import torch
import triton
import triton.language as tl


@triton.jit
def pairwise(x_ptr, y_ptr, T, BLOCK: tl.constexpr):  # <- here
    column = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    first = tl.program_id(0) * T
    for step in range(T):
        x = tl.load(x_ptr + (first + step) * BLOCK + column).to(tl.float32)
        total += tl.exp2(x[:, None] * x[None, :])
    tl.store(y_ptr + column[:, None] * BLOCK + column[None, :], total)


def run(x):
    y = torch.empty_like(x, dtype=torch.float32)
    pairwise[(8192,)](x, y, 128, 128, num_warps=4)
    return y
