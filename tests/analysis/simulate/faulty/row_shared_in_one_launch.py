# faulty: softmax · expect: read_write_race@16
# The sum of a row is read by programs that do not know whether it is complete.
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, sum_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < N
    x = tl.load(x_ptr + row * N + column, mask=mask, other=-float("inf")).to(tl.float32)
    e = tl.exp(x)
    tl.atomic_add(sum_ptr + row, tl.sum(e, axis=0))
    total = tl.load(sum_ptr + row)
    y = e / total
    tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    sums = torch.zeros(M, dtype=torch.float32, device=x.device)
    softmax[(M, triton.cdiv(N, 512))](x, sums, y, N, BLOCK=512)
    return y
