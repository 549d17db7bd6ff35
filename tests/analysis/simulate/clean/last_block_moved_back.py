# clean: vector_add
# The last block overlaps the one before and writes the same values.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    first = tl.minimum(tl.program_id(0) * BLOCK, N - BLOCK)
    i = first + tl.arange(0, BLOCK)
    tl.store(c_ptr + i, tl.load(a_ptr + i) + tl.load(b_ptr + i))


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
