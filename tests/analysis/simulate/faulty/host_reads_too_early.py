# faulty: softmax · expect: uninitialised_read@23
# Torch sums a tensor of which a kernel fills one half.
import torch
import triton
import triton.language as tl


@triton.jit
def exponentials(x_ptr, e_ptr, part_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * N + column, mask=column < N, other=-float("inf")).to(tl.float32)
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(e_ptr + row * N + column, e, mask=column < N)
    tl.store(part_ptr + row * 2, tl.sum(e, axis=0))


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    e = torch.empty((M, N), dtype=torch.float32, device=x.device)
    parts = torch.empty((M, 2), dtype=torch.float32, device=x.device)
    exponentials[(M,)](x, e, parts, N, BLOCK=triton.next_power_of_2(N))
    total = parts.sum(dim=1, keepdim=True)
    return (e / total).to(x.dtype)
