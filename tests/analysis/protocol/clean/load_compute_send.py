# clean
"""Three partitions in a row; a tile loaded once is awaited again in every trip."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def load(q_desc, x_desc, q, tiles, q_full, full, empty, steps):
    mbarrier.expect(q_full, q_desc.block_type.nbytes)
    tma.async_copy_global_to_shared(q_desc, [0, 0], q_full, q)
    step = 0
    while step < steps:
        slot = step % 2
        mbarrier.wait(empty.index(slot), ((step // 2) & 1) ^ 1)
        mbarrier.expect(full.index(slot), x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [step * 64, 0], full.index(slot), tiles.index(slot))
        step += 1


@gluon.jit
def compute(q, tiles, out, q_full, full, empty, out_full, out_empty, steps):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    for step in range(steps):
        slot = step % 2
        phase = (step // 2) & 1
        mbarrier.wait(q_full, 0)
        mbarrier.wait(full.index(slot), phase)
        y = q.load(layout) * tiles.index(slot).load(layout)
        mbarrier.arrive(empty.index(slot), count=1)
        mbarrier.wait(out_empty.index(slot), phase ^ 1)
        out.index(slot).store(y)
        fence_async_shared()
        mbarrier.arrive(out_full.index(slot), count=1)


@gluon.jit
def send(y_desc, out, out_full, out_empty, steps):
    for step in range(steps):
        slot = step % 2
        mbarrier.wait(out_full.index(slot), (step // 2) & 1)
        tma.async_copy_shared_to_global(y_desc, [step * 64, 0], out.index(slot))
        tma.store_wait(pendings=1)
        mbarrier.arrive(out_empty.index((step + 1) % 2), count=1, pred=step > 0)
    tma.store_wait(pendings=0)


@gluon.jit
def kernel(q_desc, x_desc, y_desc, steps):
    q = gl.allocate_shared_memory(gl.float16, [64, 64], q_desc.layout)
    tiles = gl.allocate_shared_memory(gl.float16, [2, 64, 64], x_desc.layout)
    out = gl.allocate_shared_memory(gl.float16, [2, 64, 64], y_desc.layout)
    q_full = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    out_full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    out_empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    mbarrier.init(q_full, count=1)
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
        mbarrier.init(out_full.index(i), count=1)
        mbarrier.init(out_empty.index(i), count=1)
    gl.warp_specialize(
        [
            (compute, (q, tiles, out, q_full, full, empty, out_full, out_empty, steps)),
            (load, (q_desc, x_desc, q, tiles, q_full, full, empty, steps)),
            (send, (y_desc, out, out_full, out_empty, steps)),
        ],
        [1, 1],
        [24, 24],
    )


ARGUMENTS = {
    "q_desc": ("fp16", [64, 64]),
    "x_desc": ("fp16", [64, 64]),
    "y_desc": ("fp16", [64, 64]),
    "steps": "i32",
}
