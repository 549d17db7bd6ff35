"""The catalog reads contracts, refuses broken ones by field, and never touches a kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kernels.catalog import (
    CatalogError,
    UnknownProblem,
    evaluate_expression,
    load_all,
    load_problem,
    read_problem,
    slugs,
)

ROOT = Path(__file__).resolve().parents[2]
CONTRACT = """
title = "Twice"
maths = "y = 2 x"
summary = "Doubles."
teaches = "nothing"

[[inputs]]
name = "x"
shape = ["N"]

[[outputs]]
name = "y"
shape = ["N"]

[cost]
flops = "N"
bytes = "2 * N * itemsize"

[tolerance.fp32]
norm = 1e-6
element = 1e-6

[[cases]]
name = "small"
sets = ["host"]
dtype = "fp32"
dims = { N = 8 }

[[zoo]]
name = "twice"
file = "twice.cpp"
language = "cpp"
idea = "Doubles."
scope = "Any N."

[zoo.parameters.UNROLL]
values = [1, 2]
default = 1
why = "because"
"""


def make_problem(folder: Path, contract: str = CONTRACT) -> Path:
    folder = folder / "twice"
    (folder / "zoo").mkdir(parents=True)
    (folder / "zoo" / "twice.cpp").write_text("constexpr int UNROLL = 1;\n")
    (folder / "problem.toml").write_text(contract, encoding="utf-8")
    return folder


def test_every_problem_loads_without_importing_torch_or_a_kernel() -> None:
    program = (
        "import sys; from kernels.catalog import load_all; problems = load_all();"
        "[kernel.source for problem in problems for kernel in problem.zoo];"
        "heavy = {'torch', 'triton', 'numpy', 'django'} & set(sys.modules);"
        "loaded = [name for name in sys.modules if name.startswith('kernels.problems')];"
        "print(len(problems), sorted(heavy), loaded)"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert finished.stdout.strip() == f"{len(slugs())} [] []"


def test_the_four_problems_have_host_and_gpu_cases_of_both_sizes() -> None:
    assert {"vector_add", "softmax", "rmsnorm", "matmul"} <= set(slugs())
    for problem in load_all():
        assert problem.case_sets("host") == ["host", "host-quick"]
        assert problem.case_sets("cuda") == ["gpu", "gpu-quick"]


def test_every_case_set_checks_an_unscored_odd_size() -> None:
    for problem in load_all():
        for name in problem.case_sets("host") + problem.case_sets("cuda"):
            cases = problem.cases_in(name)
            assert any(not case.scored and "odd" in case.name for case in cases), (
                problem.slug,
                name,
            )


def test_a_quick_set_of_the_host_is_part_of_the_full_one() -> None:
    for problem in load_all():
        quick, full = problem.cases_in("host-quick"), problem.cases_in("host")
        assert all(case in full for case in quick)
        assert len(quick) < len(full)


def test_costs_follow_from_the_dimensions_and_the_dtype() -> None:
    cases = {case.name: case for case in load_problem("softmax").cases}
    assert cases["2048x2048-fp32"].bytes_moved == 2 * 2048 * 2048 * 4
    assert cases["2048x4096-bf16"].bytes_moved == 2 * 2048 * 4096 * 2
    cases = {case.name: case for case in load_problem("matmul").cases}
    assert cases["384x1024x768-fp32"].flops == 2 * 384 * 1024 * 768


def test_the_c_prototype_lists_inputs_then_outputs_then_dimensions() -> None:
    assert load_problem("matmul").cpp_prototype("fp32") == (
        'extern "C" void matmul_fp32(const float *A, const float *B, float *C, '
        "int64_t M, int64_t K, int64_t N)"
    )
    assert load_problem("rmsnorm").cpp_prototype("bf16") == (
        'extern "C" void rmsnorm_bf16(const uint16_t *x, const uint16_t *w, uint16_t *y, '
        "int64_t M, int64_t N)"
    )


def test_an_unknown_problem_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UnknownProblem) as caught:
        load_problem("softmix")
    assert "softmix" in str(caught.value)
    assert "softmax" in caught.value.remedy


def test_a_problem_is_a_folder_and_needs_no_registration(tmp_path: Path) -> None:
    problem = read_problem(make_problem(tmp_path))
    assert problem.slug == "twice"
    assert problem.dimension_names == ("N",)
    assert problem.zoo[0].parameters[0].values == (1, 2)


@pytest.mark.parametrize(
    ("good", "bad", "field"),
    [
        ('title = "Twice"', "", "title: is missing"),
        ('title = "Twice"', "title = 7", "title: must be text"),
        ('title = "Twice"', 'title = " "', "title: must not be empty"),
        ('teaches = "nothing"', 'teaches = "nothing"\ntiming = 1', "timing: is not a known field"),
        ('shape = ["N"]', 'shape = ["N", "a b"]', "inputs[0]: 'a b' is neither"),
        ('name = "x"', 'name = "x"\ndraw = "gaussian"', "inputs[0].draw: 'gaussian'"),
        ('name = "y"', 'name = "x"', "inputs and outputs: x is named twice"),
        ('flops = "N"', 'flops = "N + Q"', "cost.flops: cannot be computed"),
        ('flops = "N"', 'flops = "N.real"', "cost.flops: cannot be computed"),
        ('flops = "N"', 'flops = "N - N"', "cost.flops: is 0"),
        ("[tolerance.fp32]", "[tolerance.fp99]", "tolerance.fp99: is not one of"),
        ("norm = 1e-6", "norm = 0", "tolerance.fp32: norm and element"),
        ("[tolerance.fp32]", "[tolerance.bf16]", "cases[0].dtype: there is no tolerance"),
        ("dims = { N = 8 }", "dims = { N = 0 }", "cost.flops: is 0"),
        ("dims = { N = 8 }", "dims = { N = 8, M = 2 }", "cases[0].dims: must give N"),
        ("dims = { N = 8 }", "dims = { N = true }", "cases[0].dims.N: must be a whole number"),
        ('sets = ["host"]', "sets = []", "cases[0].sets: must be a list"),
        ('sets = ["host"]', 'sets = ["tpu"]', "cases[0].sets: 'tpu'"),
        ('sets = ["host"]', 'sets = ["host"]\nscored = false', "cases[0].sets: 'host' holds no"),
        ('dtype = "fp32"', 'dtype = "fp32"\ndraws = { z = "wide" }', "cases[0].draws.z: is not an"),
        ('dtype = "fp32"', 'dtype = "fp32"\ndraws = { x = "far" }', "cases[0].draws.x: 'far'"),
        ('file = "twice.cpp"', 'file = "thrice.cpp"', "zoo[0].file: there is no"),
        ('language = "cpp"', 'language = "rust"', "zoo[0].language: 'rust'"),
        ("default = 1", "default = 3", "zoo[0].parameters.UNROLL.default: 3 is not among"),
        ("values = [1, 2]", "values = [1, 1]", "zoo[0].parameters.UNROLL.values: holds a value"),
        ('why = "because"', "", "zoo[0].parameters.UNROLL.why: is missing"),
        ("[cost]", "[cost", "Expected"),
    ],
)
def test_a_broken_contract_is_refused_by_file_and_field(
    tmp_path: Path, good: str, bad: str, field: str
) -> None:
    assert good in CONTRACT
    folder = make_problem(tmp_path, CONTRACT.replace(good, bad, 1))
    with pytest.raises(CatalogError) as caught:
        read_problem(folder)
    assert str(folder / "problem.toml") in str(caught.value)
    assert field in str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("2 * M * N", 30), ("(M + N) ** 2", 64), ("N // M - 1", 0), ("7", 7)],
)
def test_expressions_know_integer_arithmetic(text: str, value: int) -> None:
    assert evaluate_expression(text, {"M": 3, "N": 5}) == value


@pytest.mark.parametrize("text", ["M / N", "M.real", "f(M)", "1.5", "M if N else 1", "-M", "True"])
def test_expressions_know_nothing_else(text: str) -> None:
    with pytest.raises(ValueError, match="is not an integer expression"):
        evaluate_expression(text, {"M": 3, "N": 5})
