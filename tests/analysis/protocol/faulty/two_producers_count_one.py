# arrival_mismatch at line 50
"""Two partitions fill one slot, but the first of them completes its barrier."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def load(which: gl.constexpr, x_desc, tiles, full, empty, steps):
    for step in range(steps):
        slot = step % 3
        mbarrier.wait(empty.index(slot), ((step // 3) & 1) ^ 1)
        mbarrier.expect(full.index(slot), x_desc.block_type.nbytes)
        tile = tiles.index(slot * 2 + which)
        tma.async_copy_global_to_shared(x_desc, [step * 64, 0], full.index(slot), tile)


@gluon.jit
def load_first(x_desc, tiles, full, empty, steps):
    load(0, x_desc, tiles, full, empty, steps)


@gluon.jit
def load_second(x_desc, tiles, full, empty, steps):
    load(1, x_desc, tiles, full, empty, steps)


@gluon.jit
def use(y_ptr, tiles, full, empty, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [4, 1], [1, 0])
    total = gl.zeros([64, 32], gl.float16, layout)
    for step in range(steps):
        slot = step % 3
        mbarrier.wait(full.index(slot), (step // 3) & 1)
        total += tiles.index(slot * 2).slice(0, 32, dim=1).load(layout)
        total += tiles.index(slot * 2 + 1).slice(32, 32, dim=1).load(layout)
        mbarrier.arrive(empty.index(slot), count=1)
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 32, gl.SliceLayout(0, layout))[None, :]
    gl.store(y_ptr + rows * 32 + columns, total)


@gluon.jit
def kernel(x_desc, w_desc, y_ptr, steps):
    tiles = gl.allocate_shared_memory(gl.float16, [6, 64, 64], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [3, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(3):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (use, (y_ptr, tiles, full, empty, steps)),
            (load_first, (x_desc, tiles, full, empty, steps)),
            (load_second, (w_desc, tiles, full, empty, steps)),
        ],
        [1, 1],
        [24, 24],
    )


ARGUMENTS = {
    "x_desc": ("fp16", [64, 64]),
    "w_desc": ("fp16", [64, 64]),
    "y_ptr": "*fp16",
    "steps": "i32",
}
