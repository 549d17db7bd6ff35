# faulty: softmax · expect: false_assumption@11
# The compiler is told that every row begins at a multiple of 16, which an odd width does not keep.
import torch
import triton
import triton.language as tl


@triton.jit
def rows(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    start = tl.multiple_of(tl.program_id(0) * N, 16)
    x = tl.load(x_ptr + start + column, mask=column < N, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, axis=0))
    y = x / tl.sum(x, axis=0)
    tl.store(y_ptr + start + column, y.to(y_ptr.dtype.element_ty), mask=column < N)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    rows[(M,)](x, y, N, BLOCK=triton.next_power_of_2(N))
    return y
