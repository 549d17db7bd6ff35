# clean
"""Three partitions: load, multiply into tensor memory, write out."""

import triton.experimental.gluon.language as gl
from triton.experimental import gluon
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    get_tmem_reg_layout,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma,
    tma,
)


@gluon.jit
def load(a_desc, b_desc, a_tiles, b_tiles, full, empty, k_size, STAGES: gl.constexpr):
    for step in range(gl.cdiv(k_size, 64)):
        slot = step % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), a_desc.block_type.nbytes + b_desc.block_type.nbytes)
        k = step * 64
        tma.async_copy_global_to_shared(a_desc, [0, k], full.index(slot), a_tiles.index(slot))
        tma.async_copy_global_to_shared(b_desc, [k, 0], full.index(slot), b_tiles.index(slot))


@gluon.jit
def multiply(a_tiles, b_tiles, sums, full, empty, done, k_size, STAGES: gl.constexpr):
    for step in range(gl.cdiv(k_size, 64)):
        slot = step % STAGES
        phase = (step // STAGES) & 1
        mbarrier.wait(full.index(slot), phase)
        tcgen05_mma(a_tiles.index(slot), b_tiles.index(slot), sums, use_acc=step > 0)
        tcgen05_commit(empty.index(slot))
    tcgen05_commit(done)


@gluon.jit
def write(c_ptr, sums, done):
    layout: gl.constexpr = get_tmem_reg_layout(gl.float32, (128, 128), sums.layout, gl.num_warps())
    rows = gl.arange(0, 128, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 128, gl.SliceLayout(0, layout))[None, :]
    mbarrier.wait(done, 0)
    gl.store(c_ptr + rows * 128 + columns, sums.load(layout))


@gluon.jit
def kernel(a_desc, b_desc, c_ptr, k_size, STAGES: gl.constexpr):
    a_tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 128, 64], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 128], b_desc.layout)
    sums = allocate_tensor_memory(
        gl.float32, [128, 128], TensorMemoryLayout([128, 128], col_stride=1)
    )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(done, count=1)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    gl.warp_specialize(
        [
            (write, (c_ptr, sums, done)),
            (load, (a_desc, b_desc, a_tiles, b_tiles, full, empty, k_size, STAGES)),
            (multiply, (a_tiles, b_tiles, sums, full, empty, done, k_size, STAGES)),
        ],
        [1, 1],
        [24, 24],
    )


CAPABILITY = 100
ARGUMENTS = {
    "a_desc": ("fp16", [128, 64]),
    "b_desc": ("fp16", [64, 128]),
    "c_ptr": "*fp32",
    "k_size": "i32",
    "STAGES": 2,
}
