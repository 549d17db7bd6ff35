# phase_overtaken at line 21
"""The parity stays 0: from the second trip on the wait is over before the copy."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def kernel(x_desc, y_ptr, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], x_desc.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(arrived, count=1)
    total = gl.zeros([64, 64], gl.float16, layout)
    for step in range(steps):
        mbarrier.expect(arrived, x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [step * 64, 0], arrived, tile)
        mbarrier.wait(arrived, 0)
        total += tile.load(layout)
    gl.store(y_ptr + rows * 64 + columns, total)


ARGUMENTS = {"x_desc": ("fp16", [64, 64]), "y_ptr": "*fp16", "steps": "i32"}
