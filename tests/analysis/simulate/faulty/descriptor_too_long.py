# faulty: vector_add · expect: out_of_bounds_read@15, out_of_bounds_write@16
# Tensor descriptors of the padded length.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    padded = tl.cdiv(N, BLOCK) * BLOCK
    a = tl.make_tensor_descriptor(a_ptr, [padded], [1], [BLOCK])
    b = tl.make_tensor_descriptor(b_ptr, [padded], [1], [BLOCK])
    c = tl.make_tensor_descriptor(c_ptr, [padded], [1], [BLOCK])
    first = tl.program_id(0) * BLOCK
    total = a.load([first]) + b.load([first])
    c.store([first], total)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
