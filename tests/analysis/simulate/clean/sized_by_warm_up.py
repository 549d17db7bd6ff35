# clean: softmax
# A warm-up says how many programs fit; each takes rows in turn.
import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, M, N, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < N
    for row in tl.range(tl.program_id(0), M, tl.num_programs(0), num_stages=2):
        x = tl.load(x_ptr + row * N + column, mask=mask, other=-float("inf")).to(tl.float32)
        e = tl.exp(x - tl.max(x, axis=0))
        y = e / tl.sum(e, axis=0)
        tl.store(y_ptr + row * N + column, y.to(y_ptr.dtype.element_ty), mask=mask)


def run(x: torch.Tensor) -> torch.Tensor:
    M, N = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(N)
    compiled = softmax.warmup(x, y, M, N, BLOCK=block, grid=(1,))
    compiled._init_handles()
    device = torch.cuda.get_device_properties(x.device)
    warps = device.regs_per_multiprocessor // (compiled.n_regs * 32)
    programs = device.multi_processor_count * max(1, warps // 4)
    softmax[(min(programs, M),)](x, y, M, N, BLOCK=block)
    return y
