# missing_proxy_fence at line 18
"""The fence comes first and the stores it should cover after it."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def compute(x_ptr, tile, full, empty, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    for step in range(steps):
        value = gl.load(x_ptr + step * 4096 + rows * 64 + columns)
        mbarrier.wait(empty, (step & 1) ^ 1)
        fence_async_shared()
        tile.store(value + value)
        mbarrier.arrive(full, count=1)


@gluon.jit
def send(y_desc, tile, full, empty, steps):
    for step in range(steps):
        mbarrier.wait(full, step & 1)
        tma.async_copy_shared_to_global(y_desc, [step * 64, 0], tile)
        tma.store_wait(pendings=0)
        mbarrier.arrive(empty, count=1)


@gluon.jit
def kernel(x_ptr, y_desc, steps):
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], y_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(full, count=1)
    mbarrier.init(empty, count=1)
    gl.warp_specialize(
        [
            (compute, (x_ptr, tile, full, empty, steps)),
            (send, (y_desc, tile, full, empty, steps)),
        ],
        [1],
        [24],
    )


ARGUMENTS = {"x_ptr": "*fp16", "y_desc": ("fp16", [64, 64]), "steps": "i32"}
