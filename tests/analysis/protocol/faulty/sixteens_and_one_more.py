# deadlock at line 28
"""The producer makes a multiple of 16 trips, the consumer one more."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def produce(x_desc, tiles, full, empty, steps, STAGES: gl.constexpr):
    for step in range(steps):
        slot = step % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [step * 64, 0], full.index(slot), tiles.index(slot))


@gluon.jit
def consume(y_ptr, tiles, full, empty, steps, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    total = gl.zeros([64, 64], gl.float16, layout)
    for step in range(steps + 1):
        slot = step % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(full.index(slot), phase)
        total += tiles.index(slot).load(layout)
        mbarrier.arrive(empty.index(slot), count=1)
    gl.store(y_ptr + rows * 64 + columns, total)


@gluon.jit
def kernel(x_desc, y_ptr, steps, STAGES: gl.constexpr):
    tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], x_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (consume, (y_ptr, tiles, full, empty, steps, STAGES)),
            (produce, (x_desc, tiles, full, empty, steps, STAGES)),
        ],
        [1],
        [24],
    )


ARGUMENTS = {"x_desc": ("fp16", [64, 64]), "y_ptr": "*fp16", "steps": "i32:16", "STAGES": 3}
