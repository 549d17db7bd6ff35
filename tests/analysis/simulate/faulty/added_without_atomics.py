# faulty: vector_add · expect: read_write_race@13, write_race@14
# Two programs add to one element by load, add, store.
import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    x = tl.load(x_ptr + i, mask=mask) if tl.program_id(1) == 0 else tl.load(y_ptr + i, mask=mask)
    total = tl.load(c_ptr + i, mask=mask) + x
    tl.store(c_ptr + i, total, mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.zeros_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096), 2)](a, b, c, N, BLOCK=4096)
    return c
