"""vector_add 256Mi-bf16: clean. Addresses that come from memory cannot be read together."""

import torch
import triton
import triton.language as tl


@triton.jit
def gathered_add(a_ptr, b_ptr, c_ptr, order_ptr, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    place = tl.load(order_ptr + offset)
    a = tl.load(a_ptr + place)
    b = tl.load(b_ptr + offset)
    tl.store(c_ptr + offset, a + b)


def run(a, b):
    c = torch.empty_like(a)
    order = torch.empty(a.numel(), dtype=torch.int32, device=a.device)
    gathered_add[(a.numel() // 1024,)](a, b, c, order, 1024)
    return c
