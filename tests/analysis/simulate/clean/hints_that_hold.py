# clean: vector_add
# Offsets of whole blocks, contiguous and beginning at a multiple; pointers too, in bytes.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    start = tl.multiple_of(tl.program_id(0) * BLOCK, BLOCK)
    i = tl.max_contiguous(tl.multiple_of(start + tl.arange(0, BLOCK), BLOCK), BLOCK)
    block = tl.max_constancy(i // BLOCK, BLOCK)
    a_ptrs = tl.max_contiguous(tl.multiple_of(a_ptr + i, 16), BLOCK)
    a = tl.load(a_ptrs, mask=i < N)
    b = tl.load(b_ptr + block * BLOCK + i % BLOCK, mask=i < N)
    tl.store(c_ptr + i, a + b, mask=i < N)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
