# clean
"""One product stays outstanding, so each trip releases the slot of the one before."""

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
def load(a_desc, b_desc, a_tiles, b_tiles, full, empty, k_size, STAGES: gl.constexpr):
    for step in range(gl.cdiv(k_size, 64)):
        slot = step % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        k = step * 64
        tma.async_copy_global_to_shared(a_desc, [0, k], full.index(slot), a_tiles.index(slot))
        tma.async_copy_global_to_shared(b_desc, [k, 0], full.index(slot), b_tiles.index(slot))


@gluon.jit
def multiply(c_desc, a_tiles, b_tiles, full, empty, k_size, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    sums = gl.zeros([64, 64], gl.float32, layout)
    for step in range(gl.cdiv(k_size, 64)):
        slot = step % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(full.index(slot), phase)
        sums = warpgroup_mma(a_tiles.index(slot), b_tiles.index(slot), sums, is_async=True)
        sums = warpgroup_mma_wait(num_outstanding=1, deps=(sums,))
        if step > 0:
            mbarrier.arrive(empty.index((step - 1) % STAGES), count=1)
    sums = warpgroup_mma_wait(num_outstanding=0, deps=(sums,))
    c_tile = gl.allocate_shared_memory(gl.float16, [64, 64], c_desc.layout)
    c_tile.store(sums.to(gl.float16))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [0, 0], c_tile)
    tma.store_wait(pendings=0)


@gluon.jit
def kernel(a_desc, b_desc, c_desc, k_size, STAGES: gl.constexpr):
    a_tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], b_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (multiply, (c_desc, a_tiles, b_tiles, full, empty, k_size, STAGES)),
            (load, (a_desc, b_desc, a_tiles, b_tiles, full, empty, k_size, STAGES)),
        ],
        [1],
        [24],
    )


ARGUMENTS = {
    "a_desc": ("fp16", [64, 64]),
    "b_desc": ("fp16", [64, 64]),
    "c_desc": ("fp16", [64, 64]),
    "k_size": "i32",
    "STAGES": 4,
}
