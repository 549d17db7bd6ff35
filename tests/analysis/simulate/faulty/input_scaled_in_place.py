# faulty: rmsnorm · expect: input_write@15
# An input is used as a workspace.
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, w_ptr, y_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < N
    x = tl.load(x_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
    x = x / tl.sqrt(tl.sum(x * x, axis=0) / N + 1e-6)
    tl.store(x_ptr + row * N + column, x.to(x_ptr.dtype.element_ty), mask=mask)
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * N + column, (x * w).to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    normalise[(M,)](x, w, y, N, BLOCK=triton.next_power_of_2(N))
    return y
