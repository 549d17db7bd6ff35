# faulty: vector_add · expect: false_assumption@12
# Offsets wrap around at the end, in the middle of a block that is called contiguous.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wrapped = i % N
    wrapped = tl.max_contiguous(wrapped, BLOCK)
    a = tl.load(a_ptr + wrapped)
    b = tl.load(b_ptr + wrapped)
    tl.store(c_ptr + i, a + b, mask=i < N)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
