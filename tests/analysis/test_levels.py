"""What a candidate launches is captured with no GPU, at every level, or it is said why not."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

from kernels.catalog import load_problem
from runner.__main__ import main
from runner.analysis import sass, ttgir
from runner.analysis.analyze import AnalysisSpec, Report, analyze
from runner.analysis.findings import AnalysisVerdict, FindingKind
from runner.analysis.levels import Level, Levels
from runner.analysis.targets import TARGETS
from runner.processes import Cancelled
from runner.wire import canonical, from_json, to_json

HEAD = """
import os, signal, sys, threading, time
import torch
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < N)
    tl.store(y_ptr + offset, x + x, mask=offset < N)
"""


def analysed(body: str, *, target: str = "sm_90", deadline_s: float = 60.0) -> Report:
    """A candidate for softmax: `body` follows imports and the kernel `double`."""
    return analyze(AnalysisSpec("softmax", HEAD + body, target=target, deadline_s=deadline_s))


def line_of(body: str, words: str) -> int:
    lines = (HEAD + body).splitlines()
    (number,) = (number for number, line in enumerate(lines, 1) if words in line)
    return number


def zoo_source(problem: str) -> str:
    return load_problem(problem).kernels("triton")[0].source


@pytest.mark.parametrize("target", list(TARGETS))
def test_every_level_of_a_matrix_product_for_every_target(target: str) -> None:
    report = analyze(AnalysisSpec("matmul", zoo_source("matmul"), target=target))
    kinds = {each.kind for each in report.analysis.findings}
    wrong = {
        "sm_120": FindingKind.does_not_fit,  # 192 KiB of tiles, by its own accelerator
        **dict.fromkeys(("sm_80", "sm_86", "sm_89"), FindingKind.register_spill),  # without one
    }
    assert (wrong[target] in kinds) if target in wrong else not kinds
    (levels,) = report.levels
    assert [level.name for level in levels.levels] == ["ttir", "ttgir", "llir", "ptx", "sass"]
    assert levels.binary.startswith(b"\x7fELF")
    number = target.removeprefix("sm_")
    assert f"cuda:{number}" in levels.level("ttgir").text
    assert f".target sm_{number}" in levels.level("ptx").text
    assert all(len(level.lines) > 10 for level in levels.levels)
    matrix = {"sm_90": "HGMMA", "sm_100": "UTCHMMA"}.get(target, "HMMA")
    assert f" {matrix}." in levels.level("sass").text or f" {matrix} " in levels.level("sass").text


@pytest.mark.parametrize(
    ("level", "words", "statement"),
    [
        ("ttir", "tt.store", "tl.store(y_ptr + offset, y.to("),
        ("ttgir", "tt.store", "tl.store(y_ptr + offset, y.to("),
        ("llir", "st.global", "tl.store(y_ptr + offset, y.to("),
        ("ptx", "st.global", "tl.store(y_ptr + offset, y.to("),
        ("sass", "STG.E", "tl.store(y_ptr + offset, y.to("),
        ("ttir", "tt.load", "x = tl.load(x_ptr + offset, mask=mask"),
        ("sass", "LDG.E", "x = tl.load(x_ptr + offset, mask=mask"),
        ("sass", "MUFU.EX2", "e = tl.exp2((x - largest) * LOG2_E)"),
        ("sass", "FMNMX", "largest = tl.max(x, axis=1)[:, None]"),  # inlined from the library
    ],
)
def test_a_line_of_each_level_leads_to_the_statement_it_is_from(
    level: str, words: str, statement: str
) -> None:
    source = zoo_source("softmax")
    found = analyze(AnalysisSpec("softmax", source)).levels[0].level(level)
    text, statements = found.text.splitlines(), source.splitlines()
    lines = [found.lines.get(number) for number, line in enumerate(text, 1) if words in line]
    assert lines
    assert {statements[line - 1].strip() for line in lines if line}.pop().startswith(statement)
    assert len(set(lines)) == 1


def test_the_same_kernel_gives_the_same_text_each_time() -> None:
    first, second = (analysed(PLAIN).levels[0].levels for _ in range(2))
    assert first == second
    assert "candidate.py" in first[0].text
    assert "/" not in first[0].text.partition("candidate.py")[0].rpartition('"')[2]


def test_levels_are_the_same_after_a_round_trip_through_json() -> None:
    (levels,) = analysed(PLAIN).levels
    assert levels.binary
    assert all(level.lines for level in levels.levels)
    assert from_json(Levels, json.loads(canonical(to_json(levels)))) == levels


PLAIN = """
def run(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024)
    return y
"""

LAUNCHES = """
@triton.autotune([triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 2048})], key=["N"])
@triton.heuristics({"EVEN": lambda arguments: arguments["N"] % arguments["BLOCK"] == 0})
@triton.jit
def tuned(x_ptr, y_ptr, N, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offset, tl.load(x_ptr + offset))

def inner(x, y):
    tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())

def run(x):
    assert x.is_cuda and x.device == torch.device("cuda", 0) and x.get_device() == 0
    y = torch.empty(x.shape, dtype=x.dtype, device="cuda")
    inner(x, y)
    z = y.to("cuda", torch.float32).contiguous()
    with torch.cuda.stream(torch.cuda.Stream()):
        programs = torch.cuda.get_device_properties(x.device).multi_processor_count
        double[(programs,)](z, z, 4096, 256)
    driver = triton.runtime.driver.active
    properties = driver.utils.get_device_properties(driver.get_current_device())
    double[(2, properties["multiprocessor_count"])](z, z, 4096, 512)
    torch.cuda.synchronize()
    return y
"""


def test_launches_are_captured_wherever_they_are_made() -> None:
    """Autotuned, with a heuristic, a computed grid, in a function, between torch's own work."""
    report = analysed(LAUNCHES)
    assert report.analysis.verdict is AnalysisVerdict.clean, report.analysis.reason
    kernels = report.analysis.resources["kernels"]
    assert [kernel["kernel"] for kernel in kernels] == ["tuned", "double", "double"]
    grids = [kernel["waves"][0]["grid"] for kernel in kernels]
    assert grids == [[8192 * 16384 // 1024, 1, 1], [132, 1, 1], [2, 132, 1]]
    lines = [kernel["waves"][0]["line"] for kernel in kernels]
    wanted = ("tuned[lambda", "double[(programs", "double[(2,")
    assert lines == [line_of(LAUNCHES, words) for words in wanted]
    scope = " ".join(report.analysis.scope)
    assert "tuned is autotuned: of 2 configurations" in scope
    assert "device properties, driver properties: answered as by H200 SXM, assumed" in scope


EPILOGUE = """
@triton.jit
def scale(c_ptr, BLOCK: tl.constexpr):
    offset = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(c_ptr + offset, tl.load(c_ptr + offset) * 2)

def run(A, B):
    C = A @ B
    C = torch.einsum("mk,kn->mn", A, B) + torch.nn.functional.linear(A, B) * 0 + C
    scale[(C.numel() // 4096,)](C, 4096)
    return C
"""


def test_a_dense_product_of_torch_is_not_computed_on_the_host() -> None:
    """8192³ multiplications three times would take an hour; only the shape of the result counts."""
    spec = AnalysisSpec("matmul", HEAD + EPILOGUE, case="8192x8192x8192-bf16", deadline_s=30.0)
    report = analyze(spec)
    assert report.analysis.verdict is AnalysisVerdict.clean, report.analysis.reason
    (kernel,) = report.analysis.resources["kernels"]
    assert kernel["waves"][0]["blocks"] == 8192 * 8192 // 4096
    (said,) = (line for line in report.analysis.scope if line.startswith("torch's "))
    assert all(name in said for name in ("matmul", "einsum", "linear"))


def test_another_target_is_another_device_to_the_candidate() -> None:
    grid = analysed(LAUNCHES, target="sm_80").analysis.resources["kernels"][1]["waves"][0]["grid"]
    assert grid == [108, 1, 1]


GLUON = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

@gluon.jit
def copy(x_ptr, y_ptr, N, BLOCK: gl.constexpr, layout: gl.constexpr):
    offset = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + offset, gl.load(x_ptr + offset, mask=offset < N), mask=offset < N)

def run(x):
    y = torch.empty_like(x)
    layout = gl.BlockedLayout([WIDTH], [32], [4], [0])
    copy[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 1024, layout, num_warps=4)
    return y
"""


def test_gluon_kernels_are_captured_and_their_layouts_are_judged() -> None:
    wide = analysed(GLUON.replace("WIDTH", "8"))
    assert wide.analysis.verdict is AnalysisVerdict.clean, wide.analysis.reason
    assert [level.name for level in wide.levels[0].levels] == ["ttgir", "llir", "ptx", "sass"]
    narrow = analysed(GLUON.replace("WIDTH", "1"))
    assert {each.kind for each in narrow.analysis.findings} == {FindingKind.narrow_access}
    places = {each.source.line for each in narrow.analysis.findings if each.source}
    assert places == {line_of(GLUON, "gl.store(")}


BARRIERS = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

@gluon.jit
def produce(x_desc, tiles, full, empty, steps, STAGES: gl.constexpr):
    for step in range(steps):
        slot, phase = step % STAGES, (step // STAGES) & 1
        mbarrier.wait(empty.index(slot), phase ^ 1)
        mbarrier.expect(full.index(slot), x_desc.block_type.nbytes)
        tma.async_copy_global_to_shared(x_desc, [step * 64, 0], full.index(slot), tiles.index(slot))

@gluon.jit
def consume(y_ptr, tiles, full, empty, steps, STAGES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [4, 1], [1, 0])
    row = gl.arange(0, 64, gl.SliceLayout(1, layout))[:, None]
    column = gl.arange(0, 64, gl.SliceLayout(0, layout))[None, :]
    total = gl.zeros([64, 64], gl.bfloat16, layout)
    for step in range(steps):
        slot, phase = step % STAGES, (step // STAGES) & 1
        mbarrier.wait(full.index(slot), phase)
        total += tiles.index(slot).load(layout)
        mbarrier.arrive(empty.index(slot), count=1)
    gl.store(y_ptr + row * 64 + column, total)

@gluon.jit
def ring(x_desc, y_ptr, steps, STAGES: gl.constexpr):
    tiles = gl.allocate_shared_memory(gl.bfloat16, [STAGES, 64, 64], x_desc.layout)
    full = mbarrier.allocate_mbarrier(batch=STAGES)
    empty = mbarrier.allocate_mbarrier(batch=STAGES)
    for slot in gl.static_range(STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=1)
    gl.warp_specialize(
        [
            (consume, (y_ptr, tiles, full, empty, steps, STAGES)),
            (produce, (x_desc, tiles, full, empty, steps, STAGES)),
        ],
        [1],
        [24],
    )

def run(x):
    layout = gl.NVMMASharedLayout.get_default_for([64, 64], gl.bfloat16)
    x_desc = TensorDescriptor.from_tensor(x, [64, 64], layout)
    y = torch.empty((64, 64), dtype=x.dtype, device=x.device)
    ring[(1,)](x_desc, y, 5, 3, num_warps=4)
    return y
"""


def test_the_barriers_of_a_gluon_kernel_are_searched_with_it() -> None:
    sound = analysed(BARRIERS)
    assert sound.analysis.verdict is AnalysisVerdict.clean, sound.analysis.reason
    assert any(line.startswith("barriers of ring: ") for line in sound.analysis.scope)
    (kernel,) = sound.analysis.resources["kernels"]
    assert (kernel["threads"], kernel["tma"]) == (256, {"UTMALDG.2D": 1})
    # Without the last arrival nobody ever hands a slot back.
    broken = BARRIERS.replace("mbarrier.arrive(empty.index(slot), count=1)", "pass")
    (finding,) = analysed(broken).analysis.findings
    assert finding.kind is FindingKind.deadlock
    assert (finding.source and finding.source.line) == line_of(broken, "wait(empty")


# What the candidate does → verdict, kind, and words of the line that must be named.
FAILING: dict[str, tuple[str, AnalysisVerdict, FindingKind, str | None]] = {
    "syntax": (
        "def run(x)\n    return x\n",
        AnalysisVerdict.error,
        FindingKind.compile_error,
        "def run(x)",
    ),
    "missing import": (
        "import nowhere_to_be_found\ndef run(x):\n    return x\n",
        AnalysisVerdict.error,
        FindingKind.run_error,
        "import nowhere",
    ),
    "no run": ("", AnalysisVerdict.error, FindingKind.compile_error, None),
    "raises": (
        "def run(x):\n    raise ValueError('no')\n",
        AnalysisVerdict.error,
        FindingKind.run_error,
        "raise ValueError",
    ),
    "system exit": (
        "def run(x):\n    sys.exit(0)\n",
        AnalysisVerdict.error,
        FindingKind.run_error,
        "sys.exit",
    ),
    "exits": (
        "def run(x):\n    os._exit(0)\n",
        AnalysisVerdict.error,
        FindingKind.run_error,
        None,
    ),
    "crashes": (
        "def run(x):\n    os.kill(os.getpid(), signal.SIGSEGV)\n",
        AnalysisVerdict.error,
        FindingKind.run_error,
        None,
    ),
    "kernel does not compile": (
        "@triton.jit\ndef wrong(x_ptr):\n    tl.store(x_ptr, undefined)\n"
        "def run(x):\n    wrong[(1,)](x)\n",
        AnalysisVerdict.error,
        FindingKind.compile_error,
        "undefined",
    ),
    "helper does not compile": (
        "@triton.jit\ndef helper(x):\n    return x.no_such_method()\n"
        "@triton.jit\ndef outer(x_ptr):\n    tl.store(x_ptr, helper(1.0))\n"
        "def run(x):\n    outer[(1,)](x)\n",
        AnalysisVerdict.error,
        FindingKind.compile_error,
        "no_such_method",
    ),
    "assembly that ptxas refuses": (
        "@triton.jit\ndef odd(x_ptr):\n    x = tl.load(x_ptr).to(tl.float32)\n"
        "    y = tl.inline_asm_elementwise(\n"
        "        'bogus.f32 $0, $1;', '=r,r', [x], tl.float32, is_pure=True, pack=1)\n"
        "    tl.store(x_ptr, y.to(tl.bfloat16))\ndef run(x):\n    odd[(1,)](x)\n",
        AnalysisVerdict.error,
        FindingKind.compile_error,
        "bogus.f32",
    ),
    "launches nothing": (
        "def run(x):\n    return torch.softmax(x[:4, :4], 1)\n",
        AnalysisVerdict.incomplete,
        FindingKind.not_captured,
        None,
    ),
    "thread outlives run": (
        "def late(x):\n    time.sleep(60)\n    double[(1,)](x, x, 32, 32)\n"
        "def run(x):\n    threading.Thread(target=late, args=(x,)).start()\n"
        "    double[(1,)](x, x, 4096, 1024)\n    return x\n",
        AnalysisVerdict.incomplete,
        FindingKind.not_captured,
        None,
    ),
    "thread fails": (
        "def work(x):\n    double[(1,)](torch.empty(4, device='cuda'), x, 4096, 1024)\n"
        "def run(x):\n    t = threading.Thread(target=work, args=(x,))\n    t.start()\n"
        "    t.join()\n    return x\n",
        AnalysisVerdict.incomplete,
        FindingKind.not_captured,
        None,
    ),
    "asks for what only a device can do": (
        "def run(x):\n    torch.Generator(device='cuda')\n",
        AnalysisVerdict.incomplete,
        FindingKind.unsupported_operation,
        "torch.Generator",
    ),
    "scribbles over the report": (
        "def run(x):\n    double[(1,)](x, x, 4096, 1024)\n"
        "    for name in os.listdir('/proc/self/fd'):\n"
        "        try:\n            os.pwrite(int(name), b'{}', 1 << 20)\n"
        "        except OSError:\n            pass\n    return x\n",
        AnalysisVerdict.error,
        FindingKind.run_error,
        None,
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_candidate_that_cannot_be_analysed_gets_a_clear_verdict(name: str) -> None:
    body, verdict, kind, words = FAILING[name]
    report = analysed(body)
    finding = report.analysis.findings[0]
    assert (report.analysis.verdict, finding.kind) == (verdict, kind), report.analysis.reason
    assert report.analysis.reason
    line = finding.source.line if finding.source else None
    assert line == (None if words is None else line_of(body, words))


MANY = """
def run(x):
    for stages in range(1, 41):
        double[(1,)](x, x, 4096, 1024, num_stages=stages)
    return x
"""


def test_more_kernels_than_are_looked_at_are_no_pass() -> None:
    report = analysed(MANY)
    assert report.analysis.verdict is AnalysisVerdict.incomplete
    assert report.analysis.reason == "8 more kernels were compiled than are looked at"
    assert len(report.levels) == 32


HANGS = "def run(x):\n    time.sleep(600)\n"
UNROLLED = """
@triton.jit
def endless(x_ptr):
    total = 0.0
    for step in tl.static_range(10_000_000):
        total += tl.load(x_ptr + step)
    tl.store(x_ptr, total)

def run(x):
    endless[(1,)](x)
"""


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(HANGS, id="hangs"),
        pytest.param(UNROLLED, id="compiles for minutes"),
        pytest.param(
            "def run(x):\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
            "    while True:\n        os.fork() or time.sleep(600)\n        break\n"
            "    time.sleep(600)\n",
            id="forks and hangs",
        ),
    ],
)
def test_the_deadline_holds_and_the_next_candidate_is_analysed(body: str) -> None:
    analysed(PLAIN)  # the station runs
    started = time.monotonic()
    report = analysed(body, deadline_s=2.0)
    assert time.monotonic() - started < 15
    assert report.analysis.verdict is AnalysisVerdict.incomplete
    assert report.analysis.findings[0].kind is FindingKind.deadline_passed
    assert analysed(PLAIN).analysis.verdict is AnalysisVerdict.clean


def test_a_cancelled_analysis_ends_at_once_and_leaves_nothing_behind() -> None:
    analysed(PLAIN)
    cancel = threading.Event()
    threading.Timer(1.0, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        analyze(AnalysisSpec("softmax", HEAD + HANGS), cancel=cancel)
    assert time.monotonic() - started < 10
    assert analysed(PLAIN).analysis.verdict is AnalysisVerdict.clean


def test_a_candidate_that_kills_the_station_is_blamed_or_contained() -> None:
    report = analysed("def run(x):\n    os.kill(os.getppid(), signal.SIGKILL)\n    return x\n")
    assert report.analysis.verdict in (AnalysisVerdict.error, AnalysisVerdict.incomplete)
    assert analysed(PLAIN).analysis.verdict is AnalysisVerdict.clean


CPP = """
#include <cstdint>
extern "C" void softmax_fp32(const float *x, float *y, int64_t M, int64_t N) {
    for (int64_t i = 0; i < M * N; ++i)
        y[i] = x[i] + 1.0f;
}
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on this machine")
def test_cpp_gives_its_assembly_with_lines_and_is_never_called_clean() -> None:
    report = analyze(AnalysisSpec("softmax", CPP, language="cpp"))
    assert report.analysis.verdict is AnalysisVerdict.incomplete
    (level,) = report.levels[0].levels
    assert level.name == "asm"
    assert "softmax_fp32" in level.text
    assert 5 in level.lines.values()


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on this machine")
def test_cpp_that_does_not_compile_names_the_line() -> None:
    wrong = CPP.replace("1.0f", "nothing")
    report = analyze(AnalysisSpec("softmax", wrong, language="cpp", file="mine.cpp"))
    (finding,) = report.analysis.findings
    assert (report.analysis.verdict, finding.kind) == ("error", "compile_error")
    assert finding.source is not None
    assert (finding.source.file, finding.source.line) == ("mine.cpp", 5)


CUDA = """
__device__ inline float twice(float v) { return v * 2.0f; }
__global__ void __launch_bounds__(512) plain(const float *x, float *y, long N) {
    __shared__ float part[512];
    long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < N ? x[i] : 0.0f;
    __syncthreads();
    if (i < N) y[i] = twice(part[threadIdx.x ^ 1]);
}
__global__ void indexed(const float *x, float *y, int n) {
    float local[64];
    for (int i = 0; i < 64; ++i) local[i] = x[i];
    for (int i = 0; i < n; ++i) local[(i * 7) & 63] += x[i];
    y[threadIdx.x] = local[n & 63];
}
"""
needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc here")


@needs_nvcc
@pytest.mark.parametrize("target", list(TARGETS))
def test_cuda_kernels_are_compiled_and_counted_without_a_gpu(target: str) -> None:
    report = analyze(AnalysisSpec("softmax", CUDA, language="cuda", target=target))
    assert report.analysis.verdict is AnalysisVerdict.review
    plain, indexed = report.analysis.resources["kernels"]
    assert (indexed["threads"], indexed["stack_bytes"]) == (256, 256)
    assert (plain["kernel"], plain["line"], plain["threads"]) == ("plain", 3, 512)
    assert plain["static_shared_bytes"] in (2048, 2048 + 1024)
    assert plain["barriers"] == 1
    lines = {access["line"] for access in plain["accesses"]}
    assert lines == {6, 8}
    assert {each.kind for each in report.analysis.findings} == {FindingKind.local_memory}
    assert {each.source.line for each in report.analysis.findings if each.source} == {12, 13, 14}
    assert "indexed has no __launch_bounds__" in " ".join(report.analysis.scope)
    assert [level.name for level in report.levels[0].levels] == ["ptx", "sass"]


@needs_nvcc
def test_cuda_that_does_not_compile_names_the_line() -> None:
    report = analyze(
        AnalysisSpec("softmax", CUDA.replace("twice(part", "no(part"), language="cuda")
    )
    (finding,) = report.analysis.findings
    assert (report.analysis.verdict, finding.kind) == ("error", "compile_error")
    assert (finding.source and finding.source.line) == 8


@pytest.mark.skipif(shutil.which("nvcc") is not None, reason="there is an nvcc here")
def test_cuda_without_nvcc_says_so() -> None:
    report = analyze(AnalysisSpec("softmax", CUDA, language="cuda"))
    assert report.analysis.verdict is AnalysisVerdict.incomplete
    assert report.analysis.findings[0].kind is FindingKind.missing_tool
    assert "nvcc" in report.analysis.reason


LAYOUT = "sizePerThread = [4], threadsPerWarp = [32], warpsPerCTA = [4], order = [0]"
TTGIR = (
    f"#blocked = #ttg.blocked<{{{LAYOUT}}}>"
    + """
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%p: !tt.ptr<f32> loc("p"(#loc)), %S: i32 loc("S"(#loc))) {
    %0 = tt.make_range {end = 512 : i32, start = 0 : i32} : tensor<512xi32, #blocked> loc(#loc1)
    %1 = tt.splat %S : i32 -> tensor<512xi32, #blocked> loc(#loc1)
    %2 = arith.muli %0, %1 : tensor<512xi32, #blocked> loc(#loc1)
    %3 = tt.splat %p : !tt.ptr<f32> -> tensor<512x!tt.ptr<f32>, #blocked> loc(#loc1)
    %4 = tt.addptr %3, %2 : tensor<512x!tt.ptr<f32>, #blocked>, tensor<512xi32, #blocked> loc(#loc1)
    %5 = tt.load %4 : tensor<512x!tt.ptr<f32>, #blocked> loc(#loc1)
"""
)


@pytest.mark.parametrize(("stride", "sectors", "ideal"), [(1, 16, 16), (2, 32, 16), (0, 1, 1)])
def test_addresses_are_worked_out_lane_by_lane(stride: int, sectors: int, ideal: int) -> None:
    """32 lanes of four floats are 16 sectors; every other float touches twice as many."""
    (access,) = ttgir.read(Level("ttgir", TTGIR), {"S": stride}, (1, 1, 1)).accesses
    assert (access.argument, access.bytes_per_thread) == ("p", 16)
    assert (access.sectors, access.ideal) == (sectors, ideal)


def test_an_unknown_address_is_not_guessed() -> None:
    (access,) = ttgir.read(Level("ttgir", TTGIR), {}, (1, 1, 1)).accesses
    assert (access.sectors, access.ideal) == (0, 0)


SASS = """\
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   HGMMA.64x256x16.F32.BF16 R24, gdesc[UR8], R24 ;
        /*0030*/               @P1 BRA `(.L_x_0) ;
        /*0040*/                   STG.E.U16 desc[UR4][R2.64], R4 ;
        /*0050*/                   EXIT ;
.L_x_1:
        /*0060*/                   BRA `(.L_x_1);
        /*0070*/                   NOP;
"""


def test_instructions_are_read_with_width_purpose_and_loop() -> None:
    found = sass.parse(Level("sass", SASS))
    assert [each.in_loop for each in found] == [False] + [True] * 3 + [False] * 4
    load, product, store = found[1], found[2], found[4]
    assert (load.kind, load.bytes) == ("global load", 16)
    assert (store.kind, store.bytes) == ("global store", 2)
    assert (product.kind, product.opcode) == ("matrix", "HGMMA.64x256x16.F32.BF16")
    assert sass.mix(found)["matrix"] == 1
    assert "nothing" not in sass.mix(found)


def test_the_command_line_prints_one_document(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "mine.py"
    source.write_text(HEAD + PLAIN)
    folder = tmp_path / "levels"
    arguments = ["analyze", "softmax", str(source), "--arch", "sm_89", "--json"]
    assert main([*arguments, "--levels", str(folder)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert {"verdict", "findings", "resources", "scope"} <= set(printed)
    assert (printed["verdict"], printed["resources"]["target"]) == ("clean", "sm_89")
    names = {path.suffix for path in folder.iterdir()}
    assert names == {".ttir", ".ttgir", ".llir", ".ptx", ".sass", ".cubin"}
    assert main(arguments[:-1]) == 0
    assert "registers" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["no_such_problem"],
        ["softmax", "--arch", "sm_10"],
        ["softmax", "--case", "no-such-case"],
    ],
)
def test_a_request_that_cannot_be_met_is_refused(tmp_path: Path, arguments: list[str]) -> None:
    source = tmp_path / "mine.py"
    source.write_text(HEAD + PLAIN)
    assert main(["analyze", arguments[0], str(source), *arguments[1:]]) == 2
