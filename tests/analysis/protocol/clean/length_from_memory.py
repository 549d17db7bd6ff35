# clean
"""The number of trips comes from memory and the branch from the trip."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def kernel(x_desc, y_ptr, length_ptr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], x_desc.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    total = gl.zeros([64, 64], gl.float16, layout)
    left = gl.load(length_ptr)
    phase = 0
    for start in range(0, left, 64):
        mbarrier.expect(arrived, x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [start, 0], arrived, tile)
        if start < left // 2:
            mbarrier.wait(arrived, phase)
            total += tile.load(layout)
        else:
            mbarrier.wait(arrived, phase)
            total -= tile.load(layout)
        phase ^= 1
    gl.store(y_ptr + rows * 64 + columns, total)


ARGUMENTS = {"x_desc": ("fp16", [64, 64]), "y_ptr": "*fp16", "length_ptr": "*i32"}
