# faulty: vector_add · expect: false_assumption@11
# A promise to the compiler that this length does not keep.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.assume(N % BLOCK == 0)
    mask = i < N
    a = tl.load(a_ptr + i, mask=mask)
    b = tl.load(b_ptr + i, mask=mask)
    tl.store(c_ptr + i, a + b, mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
