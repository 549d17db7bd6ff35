# clean: matmul
# Torch multiplies, a kernel rounds the result.
import torch
import triton
import triton.language as tl


@triton.jit
def convert(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < N)
    tl.store(y_ptr + i, x.to(y_ptr.dtype.element_ty), mask=i < N)


def run(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    exact = torch.mm(A.float(), B.float())
    C = torch.empty(exact.shape, dtype=A.dtype, device=A.device)
    convert[(triton.cdiv(C.numel(), 1024),)](exact, C, C.numel(), BLOCK=1024)
    return C
