# faulty: softmax · expect: out_of_bounds_read@13
# Columns beyond the row are read as well.
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    place = row * N + column
    x = tl.load(x_ptr + place, mask=row < M, other=-float("inf")).to(tl.float32)
    x = tl.where(column < N, x, -float("inf"))
    e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    y = e / tl.sum(e, axis=1, keep_dims=True)
    mask = (row < M) & (column < N)
    tl.store(y_ptr + place, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    softmax[(triton.cdiv(M, 8),)](x, y, M, N, ROWS=8, BLOCK=triton.next_power_of_2(N))
    return y
