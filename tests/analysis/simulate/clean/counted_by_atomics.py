# clean: rmsnorm
# Rows are handed out by a counter, which every program raises.
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, w_ptr, next_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < N
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    row = tl.atomic_add(next_ptr, 1, sem="relaxed")
    while row < M:
        x = tl.load(x_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
        y = x / tl.sqrt(tl.sum(x * x, axis=0) / N + 1e-6) * w
        tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=mask)
        row = tl.atomic_add(next_ptr, 1, sem="relaxed")


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    first = torch.zeros(1, dtype=torch.int32, device=x.device)
    normalise[(132,)](x, w, first, y, M, N, BLOCK=triton.next_power_of_2(N))
    return y
