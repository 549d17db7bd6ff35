"""A time below what the roofs of the device allow is impossible, and an honest one never is."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest

from kernels.catalog import Case, Problem, load_all, load_problem
from runner.evaluate import evaluate, physics
from runner.evaluate.ceilings import path_of
from runner.evaluate.cuda_ceilings import datasheet
from runner.evaluate.devices import cache_capacities, cache_sizes, device_info
from runner.evaluate.physics import MARGIN, READ_GAIN, Level, Roofs
from runner.evaluate.statistics import timing
from runner.results import Ceiling, CheckStatus, Evaluation, Timing, Verdict
from runner.spec import EvaluationSpec
from runner.tuning import nearest_setting
from runner.wire import to_json

CACHES = {1: 96 << 10, 2: 4 << 20, 3: 300 << 20}
RATES = {"L1 copy": 758e9, "L2 copy": 162e9, "L3 copy": 54e9, "DRAM copy": 41e9}
FMA = 368e9


def measured(rates: dict[str, float | None], fma: float | None = FMA) -> list[Ceiling]:
    found = [Ceiling(name, "B/s", rate, "measured", "planted") for name, rate in rates.items()]
    return [*found, Ceiling("FP32 FMA", "FLOP/s", fma, "measured", "planted", "fp32")]


HOST = physics.roofs("host", measured(RATES), CACHES)
H200 = physics.roofs(
    "cuda",
    [
        Ceiling("HBM copy", "B/s", 4.1e12, "measured", ""),
        Ceiling("L2 copy", "B/s", 7e12, "measured", ""),
        Ceiling("BF16 tensor", "FLOP/s", 790e12, "measured", "", "bf16"),
        Ceiling("FP32 FMA", "FLOP/s", 51e12, "measured", "", "fp32"),
        *datasheet("NVIDIA H200"),
    ],
    {2: 60 << 20},
)


def took(us: float, baseline_us: float | None = None) -> Timing:
    return timing("torch", [baseline_us or 2 * us] * 3, [us] * 3)


def case_of(slug: str, name: str) -> Case:
    return next(case for case in load_problem(slug).cases if case.name == name)


def floor_us(roofs: Roofs, case: Case) -> float:
    least = physics.floor(roofs, case.bytes_moved, case.flops, case.dtype)
    assert least is not None
    return least.us


def test_what_fits_a_cache_is_bounded_by_that_cache_alone() -> None:
    small = physics.floor(HOST, 64 << 10, 1, "fp32")
    assert small is not None
    assert small.us == pytest.approx((64 << 10) / (758e9 * READ_GAIN["host"]) * 1e6)
    assert "L1 copy" in small.words


def test_what_exceeds_a_cache_passes_the_next_one_only_for_the_rest() -> None:
    roofs = Roofs((Level("near", 100, 1e6), Level("far", math.inf, 1e3)), {})
    least = physics.floor(roofs, 150, 1, "fp32")
    assert least is not None
    assert least.us == pytest.approx(100 + 50_000)
    assert "far" in least.words


def test_arithmetic_sets_the_floor_of_a_product_and_memory_that_of_a_sum() -> None:
    product = physics.floor(HOST, 3 << 20, 2 * 512**3, "fp32")
    total = physics.floor(HOST, 48 << 20, 4 << 20, "fp32")
    assert product is not None
    assert total is not None
    assert "FLOP" in product.words
    assert product.us == pytest.approx(2 * 512**3 / (FMA * 8 / 7) * 1e6)
    assert "through L3 copy" in total.words


def test_a_time_under_the_floor_is_impossible_beyond_the_margin() -> None:
    case = case_of("vector_add", "4Mi-fp32")
    floor = floor_us(HOST, case)
    assert physics.examine(case, took(floor / MARGIN * 1.01), HOST).possible
    below = physics.examine(case, took(floor / MARGIN * 0.99), HOST)
    assert not below.possible
    assert "is impossible" in below.words
    assert "L3 copy" in below.words


def test_roofs_that_the_baseline_itself_breaks_judge_nobody() -> None:
    case = case_of("vector_add", "4Mi-fp32")
    floor = floor_us(HOST, case)
    found = physics.examine(case, took(floor / 3, baseline_us=floor / 2), HOST)
    assert found.possible
    assert "not judged" in found.words


def test_an_unknown_roof_is_not_held_against_anyone() -> None:
    nothing = physics.roofs("host", measured(dict.fromkeys(RATES), None), CACHES)
    assert physics.floor(nothing, 1 << 30, 1 << 40, "fp32") is None
    found = physics.examine(case_of("vector_add", "4Mi-fp32"), took(0.001), nothing)
    assert found.possible
    assert "no roof is known" in found.words


def test_caches_that_a_machine_hides_are_taken_to_hold_everything() -> None:
    hidden = physics.roofs("host", measured(RATES), {1: 96 << 10, 2: 4 << 20})
    assert [level.name for level in hidden.levels] == ["L1 copy", "L2 copy"]
    assert hidden.levels[-1].capacity == math.inf


def test_a_farther_level_that_measured_faster_sets_the_pace_of_the_nearer() -> None:
    rates = {**RATES, "DRAM copy": 100e9}
    pace = {
        level.name: level.rate for level in physics.roofs("host", measured(rates), CACHES).levels
    }
    assert pace["L3 copy"] == pace["DRAM copy"]


def test_matrix_units_raise_the_peak_or_make_it_unknown() -> None:
    plain, amx, sme = (
        physics.roofs("host", measured(RATES), CACHES, frozenset(flags)).peaks.get("fp32")
        for flags in ([], ["amx_tile"], ["sme"])
    )
    assert plain is not None
    assert amx is not None
    assert amx[1] > 10 * plain[1]
    assert sme is None


def test_a_gpu_is_held_against_its_datasheet_and_fp32_against_its_tensor_cores() -> None:
    assert {level.name: level.rate for level in H200.levels}["HBM"] == 4.8e12
    assert H200.peaks["bf16"][1] == pytest.approx(989e12 * 8 / 7)
    assert H200.peaks["fp32"][0] == "TF32 tensor"
    unknown = physics.roofs("cuda", [Ceiling("L2 copy", "B/s", 7e12, "measured", "")], {})
    assert unknown.levels[-1].capacity == math.inf


# What the tuned C++ kernels of the zoo took on the machine that RATES and FMA were measured on:
# two cores of a Sapphire Rapids Xeon, 2026-11-30, the tenth percentile of 30 calls.
TUNED_US = {
    ("vector_add", "4Mi-fp32"): 1660,
    ("vector_add", "1Mi-fp32"): 407,
    ("softmax", "2048x2048-fp32"): 1510,
    ("softmax", "128x32768-fp32"): 1429,
    ("softmax", "512x2048-fp32"): 330,
    ("rmsnorm", "1024x4096-fp32"): 1031,
    ("rmsnorm", "8192x512-fp32"): 1074,
    ("rmsnorm", "256x4096-fp32"): 337,
    ("matmul", "512x512x512-fp32"): 1006,  # MKL: it is ahead of the zoo here
    ("matmul", "384x1024x768-fp32"): 2714,
    ("matmul", "16x2048x2048-fp32"): 1392,
}


@pytest.mark.parametrize(("problem", "case"), TUNED_US)
def test_the_tuned_kernels_of_the_zoo_stay_legal_by_far(problem: str, case: str) -> None:
    """Twice as fast as what was measured must be legal still: machines are better when quiet."""
    roofs = physics.roofs("host", measured(RATES), CACHES, frozenset({"amx_tile"}))
    found = case_of(problem, case)
    assert physics.examine(found, took(TUNED_US[problem, case] / 2), roofs).possible


@pytest.mark.parametrize("problem", load_all(), ids=lambda problem: problem.slug)
def test_a_kernel_at_the_roof_itself_is_legal(problem: Problem) -> None:
    """Whoever moves each byte once at the measured rate of the level that holds them all."""
    for case in (each for each in problem.cases if each.scored):
        if "host" not in case.sets:
            bandwidth, peak = 4.8e12, 989e12
            floor = floor_us(H200, case)
        else:
            bandwidth, peak = RATES["L2 copy"], FMA
            floor = floor_us(HOST, case)
        roofline_us = max(case.bytes_moved / bandwidth, case.flops / peak) * 1e6
        assert roofline_us * MARGIN >= floor, case.name


def test_the_caches_of_all_cores_hold_at_least_what_one_core_sees() -> None:
    capacities, cores = cache_capacities(), len(os.sched_getaffinity(0))
    for level, size in cache_sizes().items():
        assert size <= capacities[level] <= size * cores


def plant(folder: Path, bandwidth: float) -> None:
    """Ceilings of this host as if each memory level had this bandwidth under all allowances."""
    names = [*(f"L{level} copy" for level in cache_sizes()), "DRAM copy"]
    rate = bandwidth / READ_GAIN["host"]
    roofs = [Ceiling(name, "B/s", rate, "measured", "planted") for name in names]
    path_of(device_info("host")).write_text(json.dumps(to_json(roofs)))


def rmsnorm() -> Evaluation:
    """A kernel that is far faster than torch's unfused baseline."""
    tuned = {"THREADS": 0, "VECTOR": 16, "UNROLL": 4, "STREAM": 1, "PREFETCH": 16}
    source = nearest_setting(load_problem("rmsnorm").kernels("cpp")[0], tuned).source
    return evaluate(EvaluationSpec("rmsnorm", source, "cpp", case_set="host-quick", pairs=10))


def physics_of(evaluation: Evaluation) -> tuple[CheckStatus, str]:
    (check,) = (check for check in evaluation.integrity if check.check == "physics")
    return check.status, check.detail


@pytest.mark.skipif(not cache_sizes(), reason="this kernel does not name its caches")
def test_an_honest_kernel_is_impossible_only_under_planted_roofs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARPDECK_CACHE", str(tmp_path))
    honest = rmsnorm()
    assert honest.verdict is Verdict.passed
    assert physics_of(honest) == (
        CheckStatus.not_judged,
        "the ceilings of this device are not measured yet",
    )
    (case,) = honest.scored
    assert case.timing is not None
    between_us = math.sqrt(case.timing.median_us * case.timing.baseline_us)
    plant(tmp_path, case.bytes_moved / (between_us * 1e-6))
    refused = rmsnorm()
    assert refused.verdict is Verdict.impossible
    assert refused.speedup is None
    assert "is impossible: took" in refused.reason
    assert physics_of(refused)[0] is CheckStatus.failed
    plant(tmp_path, 1e15)
    assert rmsnorm().verdict is Verdict.passed
