# clean: rmsnorm
# A view with strides that are not those of a contiguous tensor.
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, w_ptr, y_ptr, down, right, M, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < M) & (column < N)
    x = tl.load(x_ptr + row * down + column * right, mask=mask, other=0.0).to(tl.float32)
    w = tl.load(w_ptr + column, mask=column < N, other=0.0).to(tl.float32)
    y = x / tl.sqrt(tl.sum(x * x, axis=1, keep_dims=True) / N + 1e-6) * w
    tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    turned = x.t().contiguous().t()
    y = torch.empty_like(x)
    down, right = turned.stride()
    block = triton.next_power_of_2(N)
    normalise[(triton.cdiv(M, 8),)](turned, w, y, down, right, M, N, ROWS=8, BLOCK=block)
    return y
