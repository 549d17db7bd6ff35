# clean: vector_add
# Whole blocks need no mask, the last one has it.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    i = first + tl.arange(0, BLOCK)
    if first + BLOCK <= N:
        tl.store(c_ptr + i, tl.load(a_ptr + i) + tl.load(b_ptr + i))
    else:
        mask = i < N
        a = tl.load(a_ptr + i, mask=mask, other=0.0)
        b = tl.load(b_ptr + i, mask=mask, other=0.0)
        tl.store(c_ptr + i, a + b, mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
