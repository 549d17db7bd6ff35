# phase_overtaken at line 33
"""The parity flips with every trip, but each barrier is used only every third."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def issue(x_desc, tiles, arrived, step, steps, STAGES: gl.constexpr):
    wanted = step < steps
    slot = step % STAGES
    mbarrier.expect(arrived.index(slot), x_desc.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(
        x_desc, [step * 64, 0], arrived.index(slot), tiles.index(slot), pred=wanted
    )


@gluon.jit
def kernel(x_desc, y_ptr, steps, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    rows = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 64], x_desc.layout)
    arrived = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(arrived.index(i), count=1)
    for i in gl.static_range(STAGES - 1):
        issue(x_desc, tiles, arrived, i, steps, STAGES)
    total = gl.zeros([64, 64], gl.float16, layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(arrived.index(slot), step & 1)
        total += tiles.index(slot).load(layout)
        issue(x_desc, tiles, arrived, step + STAGES - 1, steps, STAGES)
    gl.store(y_ptr + rows * 64 + columns, total)


ARGUMENTS = {"x_desc": ("fp16", [64, 64]), "y_ptr": "*fp16", "steps": "i32", "STAGES": 3}
