# missing_proxy_fence at line 23
"""cp.async writes as ordinary stores do, and nobody fences before wgmma reads."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import (
    async_copy,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)


@gluon.jit
def load(x_ptr, tiles, full, empty, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [2, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    for step in range(steps):
        slot = step % 3
        mbarrier.wait(empty.index(slot), ((step // 3) & 1) ^ 1)
        source = x_ptr + step * 4096 + rows * 64 + columns
        async_copy.async_copy_global_to_shared(tiles.index(slot), source)
        async_copy.mbarrier_arrive(full.index(slot), increment_count=False)


@gluon.jit
def use(y_ptr, tiles, full, empty, steps):
    mma: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 64, 16])
    acc = gl.zeros([64, 64], gl.float32, mma)
    for step in range(steps):
        slot = step % 3
        mbarrier.wait(full.index(slot), (step // 3) & 1)
        acc = warpgroup_mma(tiles.index(slot), tiles.index(slot), acc, is_async=True)
        acc = warpgroup_mma_wait(num_outstanding=0, deps=(acc,))
        mbarrier.arrive(empty.index(slot), count=1)
    out: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, out))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, out))[None, :]
    gl.store(y_ptr + rows * 64 + columns, gl.convert_layout(acc.to(gl.float16), out))


@gluon.jit
def kernel(x_ptr, y_ptr, steps):
    shared: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)
    tiles = gl.allocate_shared_memory(gl.float16, [3, 64, 64], shared)
    full = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        mbarrier.init(full.index(i), count=64)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (use, (y_ptr, tiles, full, empty, steps)),
            (load, (x_ptr, tiles, full, empty, steps)),
        ],
        [2],
        [64],
    )


ARGUMENTS = {"x_ptr": "*fp16", "y_ptr": "*fp16", "steps": "i32"}
