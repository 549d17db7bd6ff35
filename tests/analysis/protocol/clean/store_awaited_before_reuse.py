# clean
"""The tile is written again only when TMA has read it."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, tma


@gluon.jit
def kernel(x_ptr, y_desc, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    tile = gl.allocate_shared_memory(gl.float16, [64, 64], y_desc.layout)
    for step in range(steps):
        value = gl.load(x_ptr + step * 4096 + rows * 64 + columns)
        tma.store_wait(pendings=0)
        tile.store(value + value)
        fence_async_shared()
        tma.async_copy_shared_to_global(y_desc, [step * 64, 0], tile)
    tma.store_wait(pendings=0)


ARGUMENTS = {"x_ptr": "*fp16", "y_desc": ("fp16", [64, 64]), "steps": "i32"}
