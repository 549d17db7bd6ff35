# clean: vector_add
# As many programs as multiprocessors take blocks in turn.
import torch
import triton
import triton.language as tl


@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    while block * BLOCK < N:
        i = block * BLOCK + tl.arange(0, BLOCK)
        mask = i < N
        a = tl.load(a_ptr + i, mask=mask)
        b = tl.load(b_ptr + i, mask=mask)
        tl.store(c_ptr + i, a + b, mask=mask)
        block += tl.num_programs(0)


def run(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = torch.empty_like(a)
    programs = torch.cuda.get_device_properties(a.device).multi_processor_count
    add[(programs,)](a, b, c, a.numel(), BLOCK=4096)
    return c
