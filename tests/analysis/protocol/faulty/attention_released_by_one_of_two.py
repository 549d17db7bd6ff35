# arrival_mismatch at line 92
"""Two partitions read each key tile, and the first that is done lets it be overwritten."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def load(q_desc, k_desc, v_desc, q, k, v, q_full, q_empty, full, empty, tiles, n_ctx):
    stages: gl.constexpr = k.shape[0]
    steps = 0
    rounds = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        for half in gl.static_range(2):
            row = tile * 128 + half * 64
            mbarrier.wait(q_empty.index(half), (rounds & 1) ^ 1)
            mbarrier.expect(q_full.index(half), q_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(q_desc, [row, 0], q_full.index(half), q.index(half))
        for row in range(0, n_ctx, 64):
            slot = steps % stages
            mbarrier.wait(empty.index(slot), ((steps // stages) & 1) ^ 1)
            mbarrier.expect(full.index(slot), 2 * k_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(k_desc, [row, 0], full.index(slot), k.index(slot))
            tma.async_copy_global_to_shared(v_desc, [row, 0], full.index(slot), v.index(slot))
            steps += 1
        rounds = rounds + 1


@gluon.jit
def attend(half: gl.constexpr, o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, layout, 2)
    stages: gl.constexpr = k.shape[0]
    steps = 0
    rounds = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        mbarrier.wait(q_full.index(half), rounds & 1)
        sums = gl.zeros([64, 64], gl.float32, layout)
        for _ in range(0, n_ctx, 64):
            slot = steps % stages
            mbarrier.wait(full.index(slot), (steps // stages) & 1)
            scores = gl.zeros([64, 64], gl.float32, layout)
            keys = k.index(slot).permute((1, 0))
            scores = warpgroup_mma(q.index(half), keys, scores, is_async=True)
            scores = warpgroup_mma_wait(num_outstanding=0, deps=(scores,))
            weights = gl.convert_layout(gl.exp(scores).to(gl.float16), operand)
            sums = warpgroup_mma(weights, v.index(slot), sums, is_async=True)
            sums = warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
            mbarrier.arrive(empty.index(slot), count=1)
            steps += 1
        mbarrier.arrive(q_empty.index(half), count=1)
        rounds = rounds + 1
        tma.store_wait(pendings=0)
        o.index(half).store(sums.to(gl.float16))
        fence_async_shared()
        tma.async_copy_shared_to_global(o_desc, [tile * 128 + half * 64, 0], o.index(half))
    tma.store_wait(pendings=0)


@gluon.jit
def attend_upper(o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx):
    attend(0, o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx)


@gluon.jit
def attend_lower(o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx):
    attend(1, o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx)


@gluon.jit
def kernel(q_desc, k_desc, v_desc, o_desc, tiles, n_ctx, STAGES: gl.constexpr):
    q = gl.allocate_shared_memory(gl.float16, [2, 64, 64], q_desc.layout)
    o = gl.allocate_shared_memory(gl.float16, [2, 64, 64], o_desc.layout)
    k = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], k_desc.layout)
    v = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], v_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    q_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(q_full.index(i), count=1)
        mbarrier.init(q_empty.index(i), count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (attend_upper, (o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx)),
            (attend_lower, (o_desc, q, k, v, o, q_full, q_empty, full, empty, tiles, n_ctx)),
            (
                load,
                (q_desc, k_desc, v_desc, q, k, v, q_full, q_empty, full, empty, tiles, n_ctx),
            ),
        ],
        [4, 1],
        [160, 40],
    )


ARGUMENTS = {
    "q_desc": ("fp16", [64, 64]),
    "k_desc": ("fp16", [64, 64]),
    "v_desc": ("fp16", [64, 64]),
    "o_desc": ("fp16", [64, 64]),
    "tiles": "i32",
    "n_ctx": "i32",
    "STAGES": 2,
}
