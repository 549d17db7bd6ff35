# arrival_mismatch at line 17
"""128 threads arrive at a barrier that counts to one."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import async_copy, mbarrier


@gluon.jit
def kernel(x_ptr, y_ptr, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], shared)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    total = gl.zeros([64, 64], gl.float16, layout)
    for step in range(steps):
        source = x_ptr + step * 4096 + rows * 64 + columns
        async_copy.async_copy_global_to_shared(tile, source)
        async_copy.mbarrier_arrive(arrived, increment_count=False)
        mbarrier.wait(arrived, step & 1)
        total += tile.load(layout)
    gl.store(y_ptr + rows * 64 + columns, total)


ARGUMENTS = {"x_ptr": "*fp16", "y_ptr": "*fp16", "steps": "i32"}
