# faulty: vector_add · expect: uninitialised_read@13
# Atomics add to memory that nobody has zeroed.
import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    x = tl.load(x_ptr + i, mask=mask) if tl.program_id(1) == 0 else tl.load(y_ptr + i, mask=mask)
    tl.atomic_add(c_ptr + i, x, mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096), 2)](a, b, c, N, BLOCK=4096)
    return c
