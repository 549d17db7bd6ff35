"""Matrix product in Triton: C = A · B, row-major, for any M, N, K, bf16, fp16 and fp32.

Idea: as many programs as the GPU has multiprocessors stay resident and take tiles of C in turn, so
that one tile's stores overlap the next one's loads. Tiles are visited in groups of GROUP_M rows,
which keeps the strips of A and B that neighbours share in L2. Operands arrive by the tensor memory
accelerator, which needs no registers for addresses and fills the edges with zeros.

Where rows are not multiples of 16 bytes (the accelerator's rule), where M is so small that reading
B once is all that counts, and for fp32, a plain kernel with explicit masks runs instead.

Scope: contiguous tensors. Sums accumulate in fp32; fp32 inputs are multiplied in full precision.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BLOCK_M = 128
BLOCK_N = 256
BLOCK_K = 64
GROUP_M = 8  # rows of tiles visited together
NUM_WARPS = 8  # two warp groups, each with a 64-row half of the sums
NUM_STAGES = 4  # slices of A and B in flight
SPLIT_C = 2  # parts in which a tile of C is stored: two stage through half the shared memory
SKINNY_N = 64  # columns a program takes where M is at most 64
SKINNY_K = 128  # slice of K there
SKINNY_STAGES = 5  # slices in flight there: they are all that hides the latency of memory


@triton.jit
def tile_position(tile, rows, columns, GROUP_M: tl.constexpr):
    """Which tile of C comes `tile`-th: down GROUP_M rows, then right, then the next group."""
    group_size = GROUP_M * columns
    first_row = tile // group_size * GROUP_M
    height = tl.minimum(rows - first_row, GROUP_M)
    return first_row + tile % group_size % height, tile % group_size // height


@triton.jit
def matmul_persistent(
    a_descriptor,
    b_descriptor,
    c_descriptor,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
    SPLIT_C: tl.constexpr,
):
    """Tiles program_id, program_id + num_programs, … of C."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), rows * columns, tl.num_programs(0), flatten=True):
        row, column = tile_position(tile, rows, columns, GROUP_M)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for k in range(0, K, BLOCK_K):
            a = a_descriptor.load([row * BLOCK_M, k])
            b = b_descriptor.load([k, column * BLOCK_N])
            total = tl.dot(a, b, total)
        m, n = row * BLOCK_M, column * BLOCK_N
        if SPLIT_C == 1:
            c_descriptor.store([m, n], total.to(c_descriptor.dtype))
        else:
            halves = total.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1)
            left, right = tl.split(halves)
            c_descriptor.store([m, n], left.to(c_descriptor.dtype))
            c_descriptor.store([m, n + BLOCK_N // 2], right.to(c_descriptor.dtype))


@triton.jit
def matmul_masked(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    """One tile of C per program, every access masked."""
    rows = tl.cdiv(M, BLOCK_M)
    columns = tl.cdiv(N, BLOCK_N)
    row, column = tile_position(tl.program_id(0), rows, columns, GROUP_M)
    m = (row * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)[:, None]
    n = (column * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        a_mask = (m < M) & (k[None, :] < K)
        b_mask = (k[:, None] < K) & (n < N)
        a = tl.load(a_ptr + m * K + k[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + k[:, None].to(tl.int64) * N + n, mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    tl.store(c_ptr + m * N + n, total.to(c_ptr.dtype.element_ty), mask=(m < M) & (n < N))


def accelerated(A: torch.Tensor, B: torch.Tensor) -> bool:
    """Whether the tensor memory accelerator can address every row, and M is worth its tiles."""
    aligned = all(
        t.stride(0) * t.element_size() % 16 == 0 and t.data_ptr() % 16 == 0 for t in (A, B)
    )
    return aligned and A.element_size() == 2 and A.shape[0] > 64


def run_persistent(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> None:
    (M, K), N = A.shape, B.shape[1]
    descriptors = (
        TensorDescriptor.from_tensor(A, [BLOCK_M, BLOCK_K]),
        TensorDescriptor.from_tensor(B, [BLOCK_K, BLOCK_N]),
        TensorDescriptor.from_tensor(C, [BLOCK_M, BLOCK_N // SPLIT_C]),
    )
    programs = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
    if A.is_cuda:
        programs = min(programs, torch.cuda.get_device_properties(A.device).multi_processor_count)
    matmul_persistent[(programs,)](
        *descriptors,
        M,
        N,
        K,
        BLOCK_M,
        BLOCK_N,
        BLOCK_K,
        GROUP_M,
        SPLIT_C,
        num_warps=NUM_WARPS,
        num_stages=NUM_STAGES,
    )


def run_masked(A: torch.Tensor, B: torch.Tensor, C: torch.Tensor) -> None:
    (M, K), N = A.shape, B.shape[1]
    block_m, block_n, block_k, stages = 64, 64, 32, 3  # fp32 and unaligned rows: correct first
    if M <= 64 and A.element_size() == 2:
        block_m = max(16, triton.next_power_of_2(M))
        block_n, block_k, stages = SKINNY_N, SKINNY_K, SKINNY_STAGES
    programs = triton.cdiv(M, block_m) * triton.cdiv(N, block_n)
    matmul_masked[(programs,)](
        A, B, C, M, N, K, block_m, block_n, block_k, GROUP_M, num_warps=4, num_stages=stages
    )


def run(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    """A [M, K], B [K, N] → C [M, N] of the same dtype."""
    C = torch.empty((A.shape[0], B.shape[1]), dtype=A.dtype, device=A.device)
    if accelerated(A, B):
        run_persistent(A, B, C)
    else:
        run_masked(A, B, C)
    return C
