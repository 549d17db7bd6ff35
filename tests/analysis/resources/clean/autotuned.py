"""vector_add 256Mi-bf16: clean. Autotuned over four configurations, with a heuristic."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    [
        triton.Config({"BLOCK": block}, num_warps=warps)
        for block in (1024, 4096)
        for warps in (4, 8)
    ],
    key=["N"],
)
@triton.heuristics({"EVEN": lambda arguments: arguments["N"] % arguments["BLOCK"] == 0})
@triton.jit
def vector_add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = None if EVEN else offset < N
    a = tl.load(a_ptr + offset, mask=mask)
    b = tl.load(b_ptr + offset, mask=mask)
    tl.store(c_ptr + offset, a + b, mask=mask)


def run(a, b):
    c = torch.empty_like(a)
    N = a.numel()
    vector_add[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](a, b, c, N)
    return c
