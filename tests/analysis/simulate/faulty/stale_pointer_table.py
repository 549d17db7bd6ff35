# faulty: vector_add · expect: out_of_bounds_read@15
# Addresses in a table, one of them beyond its tensor.
import torch
import triton
import triton.language as tl


@triton.jit
def add(table_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    a_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.bfloat16))
    b_ptr = tl.load(table_ptr + 1).to(tl.pointer_type(tl.bfloat16))
    a = tl.load(a_ptr + i, mask=mask)
    b = tl.load(b_ptr + i, mask=mask)
    tl.store(c_ptr + i, a + b, mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    table = torch.tensor([a.data_ptr(), b.data_ptr() + b.nbytes], device=a.device)
    add[(triton.cdiv(N, 4096),)](table, c, N, BLOCK=4096)
    return c
