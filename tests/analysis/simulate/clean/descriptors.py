# clean: vector_add
# Tensor descriptors that end where the tensors end.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, [N], [1], [BLOCK])
    b = tl.make_tensor_descriptor(b_ptr, [N], [1], [BLOCK])
    c = tl.make_tensor_descriptor(c_ptr, [N], [1], [BLOCK])
    first = tl.program_id(0) * BLOCK
    c.store([first], a.load([first]) + b.load([first]))


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[(triton.cdiv(N, 4096),)](a, b, c, N, BLOCK=4096)
    return c
