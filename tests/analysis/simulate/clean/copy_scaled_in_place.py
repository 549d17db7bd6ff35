# clean: rmsnorm
# A copy of an input is overwritten by the program that has read it.
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(y_ptr, w_ptr, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < N
    y = tl.load(y_ptr + row * N + column, mask=mask, other=0.0).to(tl.float32)
    y = y / tl.sqrt(tl.sum(y * y, axis=0) / N + 1e-6)
    w = tl.load(w_ptr + column, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + row * N + column, (y * w).to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = x.clone()
    normalise[(M,)](y, w, N, BLOCK=triton.next_power_of_2(N))
    return y
