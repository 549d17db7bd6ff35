# faulty: vector_add · expect: misaligned_access@13
# Pairs of elements are read as words that begin at odd places.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    words_ptr = (a_ptr + 1).to(tl.pointer_type(tl.int32))
    words = tl.load(words_ptr + i // 2, mask=i // 2 * 2 + 2 < N, other=0)
    a = tl.load(a_ptr + i, mask=mask)
    b = tl.load(b_ptr + i, mask=mask)
    tl.store(c_ptr + i, tl.where(words == 12345, b, a + b), mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
