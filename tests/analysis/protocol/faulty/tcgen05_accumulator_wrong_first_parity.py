# deadlock at line 39
"""The accumulators are free at first, but the wait asks for a phase that must come."""

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
def load(a_desc, b_desc, a_tiles, b_tiles, full, empty, tiles, k_size):
    stages: gl.constexpr = a_tiles.shape[0]
    steps = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        for k in range(0, k_size, 64):
            slot = steps % stages
            bar = full.index(slot)
            mbarrier.wait(empty.index(slot), ((steps // stages) & 1) ^ 1)
            mbarrier.expect(bar, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
            tma.async_copy_global_to_shared(a_desc, [tile * 128, k], bar, a_tiles.index(slot))
            tma.async_copy_global_to_shared(b_desc, [k, 0], bar, b_tiles.index(slot))
            steps += 1


@gluon.jit
def multiply(a_tiles, b_tiles, sums, full, empty, done, free, tiles, k_size):
    stages: gl.constexpr = a_tiles.shape[0]
    steps = 0
    rounds = 0
    for _ in range(gl.program_id(0), tiles, gl.num_programs(0)):
        half = rounds & 1
        mbarrier.wait(free.index(half), (rounds // 2) & 1)
        for k in range(0, k_size, 64):
            slot = steps % stages
            mbarrier.wait(full.index(slot), (steps // stages) & 1)
            a, b = a_tiles.index(slot), b_tiles.index(slot)
            tcgen05_mma(a, b, sums.index(half), use_acc=k > 0)
            tcgen05_commit(empty.index(slot))
            steps += 1
        tcgen05_commit(done.index(half))
        rounds = rounds + 1


@gluon.jit
def write(c_ptr, sums, done, free, tiles):
    part: gl.constexpr = sums.index(0).slice(0, 64).layout
    layout: gl.constexpr = get_tmem_reg_layout(gl.float32, (128, 64), part, gl.num_warps())
    rows = gl.arange(0, 128, gl.SliceLayout(1, layout))[:, None]
    columns = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    rounds = 0
    for tile in range(gl.program_id(0), tiles, gl.num_programs(0)):
        half = rounds & 1
        mbarrier.wait(done.index(half), (rounds // 2) & 1)
        out_ptr = c_ptr + tile * 16384 + rows * 128 + columns
        gl.store(out_ptr, sums.index(half).slice(0, 64).load(layout))
        gl.store(out_ptr + 64, sums.index(half).slice(64, 64).load(layout))
        mbarrier.arrive(free.index(half), count=1)
        rounds = rounds + 1


@gluon.jit
def kernel(a_desc, b_desc, c_ptr, tiles, k_size, STAGES: gl.constexpr):
    a_tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 128, 64], a_desc.layout)
    b_tiles = gl.allocate_shared_memory(gl.float16, [STAGES, 64, 128], b_desc.layout)
    memory: gl.constexpr = TensorMemoryLayout([128, 128], col_stride=1)
    sums = allocate_tensor_memory(gl.float32, [2, 128, 128], memory)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=1)
    for i in gl.static_range(2):
        mbarrier.init(done.index(i), count=1)
        mbarrier.init(free.index(i), count=1)
    gl.warp_specialize(
        [
            (write, (c_ptr, sums, done, free, tiles)),
            (load, (a_desc, b_desc, a_tiles, b_tiles, full, empty, tiles, k_size)),
            (multiply, (a_tiles, b_tiles, sums, full, empty, done, free, tiles, k_size)),
        ],
        [1, 1],
        [24, 24],
    )


CAPABILITY = 100
ARGUMENTS = {
    "a_desc": ("fp16", [128, 64]),
    "b_desc": ("fp16", [64, 128]),
    "c_ptr": "*fp32",
    "tiles": "i32",
    "k_size": "i32",
    "STAGES": 2,
}
