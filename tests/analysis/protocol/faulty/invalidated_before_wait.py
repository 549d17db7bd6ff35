# barrier_lifetime at line 19
"""The barrier is invalidated while the copy still has to complete it."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def kernel(x_desc, y_ptr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], x_desc.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    mbarrier.expect(arrived, x_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(x_desc, [0, 0], arrived, tile)
    mbarrier.invalidate(arrived)
    value = tile.load(layout)
    gl.store(y_ptr + rows * 64 + columns, value)


ARGUMENTS = {"x_desc": ("fp16", [64, 64]), "y_ptr": "*fp16"}
