# clean: vector_add
# A lock that is acquired and released.
import torch
import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, lock_ptr, c_ptr, N, BLOCK: tl.constexpr):
    """Two programs a block add to it in turn; a lock keeps them apart."""
    block = tl.program_id(0)
    i = block * BLOCK + tl.arange(0, BLOCK)
    mask = i < N
    x = tl.load(x_ptr + i, mask=mask) if tl.program_id(1) == 0 else tl.load(y_ptr + i, mask=mask)
    while tl.atomic_cas(lock_ptr + block, 0, 1) == 1:
        pass
    c = tl.load(c_ptr + i, mask=mask)
    tl.store(c_ptr + i, c + x, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + block, 0)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.zeros_like(a)
    N = a.numel()
    blocks = triton.cdiv(N, 4096)
    locks = torch.zeros(blocks, dtype=torch.int32, device=a.device)
    add[(blocks, 2)](a, b, locks, c, N, BLOCK=4096)
    return c
