"""matmul 4096x4096x4096-bf16: older_matrix_instructions. Two warps are half a warp group."""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N, BLOCK_K, STAGES, WARPS = 64, 64, 64, 3, 2


@triton.jit
def matmul_tile(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + m[:, None] * K + (first + k)[None, :])
        b = tl.load(b_ptr + (first + k)[:, None] * N + n[None, :])
        total = tl.dot(a, b, total)  # <- here
    tl.store(c_ptr + m[:, None] * N + n[None, :], total.to(tl.bfloat16))


def run(A, B):
    (M, K), N = A.shape, B.shape[1]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    matmul_tile[(M // BLOCK_M, N // BLOCK_N)](
        A, B, C, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, num_warps=WARPS, num_stages=STAGES
    )
    return C
