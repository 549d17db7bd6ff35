# clean: vector_add
# Configurations and heuristics decide the block.
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": size}) for size in (2048, 4096)], key=["N"])
@triton.heuristics({"EVEN": lambda arguments: arguments["N"] % arguments["BLOCK"] == 0})
@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(c_ptr + i, tl.load(a_ptr + i) + tl.load(b_ptr + i))
    else:
        mask = i < N
        a = tl.load(a_ptr + i, mask=mask)
        b = tl.load(b_ptr + i, mask=mask)
        tl.store(c_ptr + i, a + b, mask=mask)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    N = a.numel()
    add[lambda meta: (triton.cdiv(N, meta["BLOCK"]),)](a, b, c, N)
    return c
