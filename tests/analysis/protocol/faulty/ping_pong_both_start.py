# phase_overtaken at line 27
"""Neither waits for its first turn, so both add to the tile at once."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def load(x_desc, tiles, full, empty, steps):
    for step in range(steps):
        slot = step % 4
        mbarrier.wait(empty.index(slot), ((step // 4) & 1) ^ 1)
        mbarrier.expect(full.index(slot), x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [step * 64, 0], full.index(slot), tiles.index(slot))


@gluon.jit
def use(me: gl.constexpr, tiles, full, empty, turn, shared, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    n = 0
    for step in range(me, steps, 2):
        slot = step % 4
        mbarrier.wait(full.index(slot), (step // 4) & 1)
        x = tiles.index(slot).load(layout)
        mbarrier.arrive(empty.index(slot), count=1)
        mbarrier.wait(turn.index(me), (n & 1) ^ 1)
        total = shared.load(layout)
        shared.store(total + x)
        mbarrier.arrive(turn.index(1 - me), count=1)
        n = n + 1


@gluon.jit
def use_even(tiles, full, empty, turn, shared, steps):
    use(0, tiles, full, empty, turn, shared, steps)


@gluon.jit
def use_odd(tiles, full, empty, turn, shared, steps):
    use(1, tiles, full, empty, turn, shared, steps)


@gluon.jit
def kernel(x_desc, y_ptr, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    tiles = gl.allocate_shared_memory(gl.float16, [4, 64, 64], x_desc.layout)
    zeros = gl.zeros([64, 64], gl.float16, layout)
    shared = gl.allocate_shared_memory(gl.float16, [64, 64], x_desc.layout, zeros)
    full = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [4, 1], mbarrier.MBarrierLayout())
    turn = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(4):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(turn.index(i), count=1)
    gl.warp_specialize(
        [
            (use_even, (tiles, full, empty, turn, shared, steps)),
            (use_odd, (tiles, full, empty, turn, shared, steps)),
            (load, (x_desc, tiles, full, empty, steps)),
        ],
        [4, 1],
        [64, 24],
    )
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    gl.store(y_ptr + rows * 64 + columns, shared.load(layout))


ARGUMENTS = {"x_desc": ("fp16", [64, 64]), "y_ptr": "*fp16", "steps": "i32"}
