# read_before_arrival at line 32
"""Two groups may be outstanding, and the tile read is in one of them."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import async_copy


@gluon.jit
def issue(x_ptr, tiles, step, steps, layout: gl.constexpr):
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    wanted = (rows < 64) & (step < steps)
    async_copy.async_copy_global_to_shared(
        tiles.index(step % 3), x_ptr + step * 4096 + rows * 64 + columns, mask=wanted
    )
    async_copy.commit_group()


@gluon.jit
def kernel(x_ptr, y_ptr, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    shared: gl.constexpr = gl.SwizzledSharedLayout(8, 1, 8, [1, 0])
    tiles = gl.allocate_shared_memory(gl.float16, [3, 64, 64], shared)
    issue(x_ptr, tiles, 0, steps, layout)
    issue(x_ptr, tiles, 1, steps, layout)
    total = gl.zeros([64, 64], gl.float16, layout)
    for step in range(steps):
        async_copy.wait_group(2)
        total += tiles.index(step % 3).load(layout)
        issue(x_ptr, tiles, step + 2, steps, layout)
    async_copy.wait_group(0)
    gl.store(y_ptr + rows * 64 + columns, total)


ARGUMENTS = {"x_ptr": "*fp16", "y_ptr": "*fp16", "steps": "i32"}
