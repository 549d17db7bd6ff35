# faulty: rmsnorm · expect: read_write_race@17
# The last of two programs is known by a counter that orders nothing.
import torch
import triton
import triton.language as tl


@triton.jit
def normalise(x_ptr, w_ptr, part_ptr, count_ptr, y_ptr, N, HALF: tl.constexpr):
    """Two programs a row; whichever arrives last finds both sums of squares and writes the row."""
    row = tl.program_id(0)
    half = tl.program_id(1)
    column = half * HALF + tl.arange(0, HALF)
    x = tl.load(x_ptr + row * N + column, mask=column < N, other=0.0).to(tl.float32)
    tl.store(part_ptr + row * 2 + half, tl.sum(x * x, axis=0))
    if tl.atomic_add(count_ptr + row, 1, sem="relaxed") == 1:
        squares = tl.load(part_ptr + row * 2) + tl.load(part_ptr + row * 2 + 1)
        factor = 1.0 / tl.sqrt(squares / N + 1e-6)
        for part in range(2):
            column = part * HALF + tl.arange(0, HALF)
            mask = column < N
            x = tl.load(x_ptr + row * N + column, mask=mask).to(tl.float32)
            w = tl.load(w_ptr + column, mask=mask).to(tl.float32)
            y = (x * factor * w).to(y_ptr.dtype.element_ty)
            tl.store(y_ptr + row * N + column, y, mask=mask)


def run(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    parts = torch.empty((M, 2), dtype=torch.float32, device=x.device)
    counts = torch.zeros(M, dtype=torch.int32, device=x.device)
    normalise[(M, 2)](x, w, parts, counts, y, N, HALF=triton.next_power_of_2(triton.cdiv(N, 2)))
    return y
