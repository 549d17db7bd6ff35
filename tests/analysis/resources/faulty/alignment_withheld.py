"""softmax 8192x16384-bf16: narrow_access. N is not specialised: no row is known to be aligned."""

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["N"])
def softmax_row(x_ptr, y_ptr, N, BLOCK_N: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * N
    column = tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + start + column)  # <- here
    e = tl.exp(x.to(tl.float32) - tl.max(x, axis=0).to(tl.float32))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + start + column, y.to(tl.bfloat16))  # <- here


def run(x):
    y = torch.empty_like(x)
    softmax_row[(x.shape[0],)](x, y, x.shape[1], x.shape[1], num_warps=16)
    return y
