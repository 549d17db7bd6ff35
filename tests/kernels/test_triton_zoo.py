"""The Triton kernels are right in the corrected interpreter and compile for Hopper with no GPU."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernels.catalog import ZooKernel, load_problem, slugs

ROOT = Path(__file__).resolve().parents[2]
SHARED_MEMORY_OF_HOPPER = 227 * 1024
Launch = dict[str, Any]


def kernel_of(slug: str) -> ZooKernel:
    (kernel,) = load_problem(slug).kernels("triton")
    return kernel


def simulated(
    slug: str, constants: dict[str, int], points: list[tuple[str, str, str]]
) -> list[str]:
    """What the interpreter finds wrong at (dims, dtype, draw) points."""
    command = [sys.executable, "-m", "tests.kernels.check_simulated", slug, json.dumps(constants)]
    finished = subprocess.run(
        command + [text for point in points for text in point],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(lines) == len(points)
    return [f"{dims} {dtype} {how}: {wrong}" for dims, dtype, how, wrong in lines if wrong]


def dims(**sizes: int) -> str:
    return json.dumps(sizes)


ROWS = [dims(M=5, N=7), dims(M=33, N=777), dims(M=1, N=1), dims(M=13, N=1), dims(M=1, N=4099)]
LONG_ROWS = [dims(M=3, N=9001), dims(M=5, N=16384)]


@pytest.mark.parametrize("slug", slugs())
def test_every_parameter_is_one_line_of_the_module_with_its_default(slug: str) -> None:
    kernel = kernel_of(slug)
    lines = re.findall(r"^([A-Z][A-Z0-9_]*) = (\d+)\b", kernel.source, re.M)
    assert lines == [(parameter.name, str(parameter.default)) for parameter in kernel.parameters]


@pytest.mark.parametrize("slug", ["softmax", "rmsnorm"])
def test_kernels_over_rows_are_right_in_registers_and_in_chunks(slug: str) -> None:
    drawn = {"softmax": ["normal", "wide", "masked", "equal"], "rmsnorm": ["normal", "wide"]}[slug]
    points = [(size, dtype, "normal") for size in ROWS for dtype in ("fp32", "bf16")]
    points += [(ROWS[1], "fp32", how) for how in drawn]
    assert simulated(slug, {}, points) == []
    chunked = {"MAX_ROW": 8192, "CHUNK": 4096, "TILE": 4096}
    points = [
        (size, dtype, how) for size in LONG_ROWS for dtype in ("fp32", "bf16") for how in drawn
    ]
    assert simulated(slug, chunked, points) == []


def test_vector_add_is_right_at_every_remainder() -> None:
    sizes = [dims(N=size) for size in (1, 4095, 4096, 4097, 10007)]
    points = [(size, dtype, "normal") for size in sizes for dtype in ("fp32", "bf16", "fp16")]
    points += [(sizes[-1], dtype, how) for dtype in ("fp32", "bf16") for how in ("tiny", "wide")]
    assert simulated("vector_add", {"BLOCK_N": 4096}, points) == []


@pytest.mark.parametrize(
    "constants", [{}, {"BLOCK_M": 64, "BLOCK_N": 128, "BLOCK_K": 32, "GROUP_M": 1, "SPLIT_C": 1}]
)
def test_matmul_is_right_on_the_accelerated_and_on_the_masked_path(
    constants: dict[str, int],
) -> None:
    accelerated = [dims(M=136, N=264, K=72), dims(M=65, N=8, K=128), dims(M=300, N=520, K=8)]
    masked = [dims(M=129, N=257, K=65), dims(M=1, N=33, K=77), dims(M=100, N=1, K=1)]
    points = [(size, "bf16", "normal") for size in accelerated + masked]
    points += [(size, "fp32", "normal") for size in masked]
    assert simulated("matmul", constants, points) == []


def compiled(slug: str, launches: list[Launch], folder: Path) -> list[dict[str, Any]]:
    """What a child process finds in the code for sm_90 of the given launches."""
    finished = subprocess.run(
        [sys.executable, "-m", "tests.kernels.check_compiled", str(kernel_of(slug).path)],
        input=json.dumps(launches),
        cwd=ROOT,
        env={**os.environ, "TRITON_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return [json.loads(line) for line in finished.stdout.splitlines()]


def launch(kernel: str, warps: int, stages: int, arguments: Launch, **constants: int) -> Launch:
    return {
        "kernel": kernel,
        "num_warps": warps,
        "num_stages": stages,
        "arguments": arguments,
        "constants": constants,
    }


X_Y = {"x_ptr": "*bf16", "y_ptr": "*bf16"}
X_W_Y = {**X_Y, "w_ptr": "*bf16"}
SIZES = {"M": "i32", "N": "i32"}
ROW_LAUNCHES = {
    "softmax": [
        launch("softmax_short_rows", 16, 3, {**X_Y, **SIZES}, ROWS=1, BLOCK_N=16384),
        launch("softmax_long_row", 16, 3, {**X_Y, "N": "i32"}, CHUNK=16384, NUM_STAGES=2),
    ],
    "rmsnorm": [
        launch("rmsnorm_short_rows", 8, 3, {**X_W_Y, **SIZES}, ROWS=1, BLOCK_N=8192),
        launch("rmsnorm_short_rows", 8, 3, {**X_W_Y, **SIZES}, ROWS=8, BLOCK_N=1024),
        launch("rmsnorm_long_row", 8, 3, {**X_W_Y, "N": "i32"}, CHUNK=8192, NUM_STAGES=2),
    ],
    "vector_add": [
        launch(
            "vector_add_block",
            8,
            3,
            {"a_ptr": dtype, "b_ptr": dtype, "c_ptr": dtype, "N": "i32"},
            BLOCK_N=4096,
        )
        for dtype in ("*fp32", "*bf16")
    ],
}


@pytest.mark.parametrize("slug", sorted(ROW_LAUNCHES))
def test_memory_bound_kernels_compile_for_hopper_with_wide_accesses(
    slug: str, tmp_path: Path
) -> None:
    for found in compiled(slug, ROW_LAUNCHES[slug], tmp_path):
        assert found["shared"] <= SHARED_MEMORY_OF_HOPPER
        assert found["stack_bytes"] == 0
        assert found["wide_loads"] > 0, "no load of 16 bytes"
        assert found["wide_stores"] > 0, "no store of 16 bytes"


def test_matmul_compiles_for_hopper_with_matrix_instructions_and_bulk_copies(
    tmp_path: Path,
) -> None:
    sizes = {"M": "i32", "N": "i32", "K": "i32"}
    descriptors = {
        "a_descriptor": "tensordesc<bf16[128, 64]>",
        "b_descriptor": "tensordesc<bf16[64, 256]>",
        "c_descriptor": "tensordesc<bf16[128, 128]>",
    }
    tile = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8}
    pointers = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*bf16"}
    skinny = {"BLOCK_M": 16, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8}
    fast, masked = compiled(
        "matmul",
        [
            launch("matmul_persistent", 8, 4, {**descriptors, **sizes}, **tile, SPLIT_C=2),
            launch("matmul_masked", 4, 5, {**pointers, **sizes}, **skinny),
        ],
        tmp_path,
    )
    assert max(fast["shared"], masked["shared"]) <= SHARED_MEMORY_OF_HOPPER
    assert fast["stack_bytes"] == masked["stack_bytes"] == 0
    assert fast["warp_group_products"] > 0
    assert fast["bulk_copies"] > 0
    assert masked["warp_products"] > 0
    assert masked["async_copies"] > 0
