# clean: rmsnorm
# The tensor is scaled, and scaled again by the same program.
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, w_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < N
    x = tl.load(x_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
    factor = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / N + 1e-6)
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * N + column, (x * factor).to(y_ptr.dtype.element_ty), mask=mask)
    y = tl.load(y_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * N + column, (y * w).to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    normalise[(M,)](x, w, y, N, BLOCK=triton.next_power_of_2(N))
    return y
