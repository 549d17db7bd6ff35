"""The C++ kernels are right on every case, with every constant, on CPUs old and new."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import platform
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from kernels.catalog import Problem, ZooKernel, load_problem, slugs
from runner.languages import cpp

ROOT = Path(__file__).resolve().parents[2]
OLD_CPU = tuple("-march=x86-64" if flag == "-march=native" else flag for flag in cpp.FLAGS)


def kernel_of(problem: Problem) -> ZooKernel:
    (kernel,) = problem.kernels("cpp")
    return kernel


def sampled_constants(kernel: ZooKernel, seed: int) -> list[dict[str, int]]:
    """The defaults, then random settings in which every value of every parameter occurs."""
    generator = random.Random(seed)
    columns = {p.name: generator.sample(p.values, len(p.values)) for p in kernel.parameters}
    turns = range(max(len(values) for values in columns.values()))
    shuffled = [{name: v[turn % len(v)] for name, v in columns.items()} for turn in turns]
    return [{p.name: p.default for p in kernel.parameters}, *shuffled]


def build(source: str, path: Path, flags: tuple[str, ...] = cpp.FLAGS) -> Path:
    path.with_suffix(".cpp").write_text(source, encoding="utf-8")
    command = ["g++", *flags, "-Wall", "-Wno-psabi", str(path.with_suffix(".cpp")), "-o", str(path)]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stderr == ""
    return path


def build_all(
    problem: Problem,
    settings: list[dict[str, int]],
    folder: Path,
    flags: tuple[str, ...] = cpp.FLAGS,
) -> dict[str, dict[str, int]]:
    """Shared objects by path, two compilers at a time."""
    source = kernel_of(problem).source
    names = [folder / f"{problem.slug}-{number}.so" for number in range(len(settings))]
    with ThreadPoolExecutor(2) as pool:
        sources = [cpp.set_constants(source, constants) for constants in settings]
        built = list(pool.map(build, sources, names, itertools.repeat(flags)))
    return {str(path): constants for path, constants in zip(built, settings, strict=True)}


def faults(problem: Problem, case_set: str, libraries: dict[str, dict[str, int]]) -> list[str]:
    """What a child process finds wrong; every library must have met every case twice."""
    module = "tests.kernels.check_native"
    command = [sys.executable, "-m", module, problem.slug, case_set, *libraries]
    # Threads that wait must not spin: the other core may be at work on another test.
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    lines = [json.loads(line) for line in finished.stdout.splitlines()]
    assert len(lines) == 2 * len(libraries) * len(problem.cases_in(case_set))
    return [
        f"{case}, shifted by {shift}, {libraries[path]}: {wrong}"
        for path, case, shift, wrong in lines
        if wrong
    ]


@pytest.mark.parametrize("slug", slugs())
def test_every_parameter_is_one_line_of_the_source_with_its_default(slug: str) -> None:
    kernel = kernel_of(load_problem(slug))
    for parameter in kernel.parameters:
        lines = re.findall(rf"^constexpr int {parameter.name} = (-?\d+);.*$", kernel.source, re.M)
        assert lines == [str(parameter.default)], parameter.name


@pytest.mark.parametrize("slug", slugs())
def test_every_tuning_line_of_the_source_is_a_parameter(slug: str) -> None:
    kernel = kernel_of(load_problem(slug))
    names = re.findall(r"^constexpr int (\w+) = -?\d+;", kernel.source, re.M)
    assert names == [parameter.name for parameter in kernel.parameters]


@pytest.mark.parametrize("slug", slugs())
def test_the_kernel_is_right_on_every_case_with_default_and_sampled_constants(
    slug: str, tmp_path: Path
) -> None:
    problem = load_problem(slug)
    settings = sampled_constants(kernel_of(problem), seed=1)
    assert faults(problem, "host", build_all(problem, settings, tmp_path)) == []


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the flags name an x86-64 baseline")
@pytest.mark.parametrize("flags", [(), ("-U__SSE2__",)], ids=["streaming", "no-streaming"])
@pytest.mark.parametrize("slug", slugs())
def test_the_kernel_is_right_on_a_cpu_without_wide_vectors(
    slug: str, flags: tuple[str, ...], tmp_path: Path
) -> None:
    problem = load_problem(slug)
    widest = {p.name: max(p.values) for p in kernel_of(problem).parameters}
    libraries = build_all(problem, [widest], tmp_path, (*OLD_CPU, *flags))
    assert faults(problem, "host-quick", libraries) == []


@pytest.mark.parametrize(
    "constants", [{}, {"CHUNK": 1024, "STAGE": 1}, {"CHUNK": 1024, "STAGE": 2}]
)
def test_softmax_treats_infinities_and_nan_as_the_formula_does(
    constants: dict[str, int], tmp_path: Path
) -> None:
    problem = load_problem("softmax")
    ((path, _),) = build_all(problem, [constants], tmp_path).items()
    x = torch.randn(7, 3001)
    x[0] = -torch.inf
    x[1, :2500] = -torch.inf
    x[2, 2000:] = -torch.inf
    x[3, 1500] = torch.inf
    x[4, 2999] = torch.nan
    x[5] = 3.4e38
    x[6, 5] = -3.4e38
    y = torch.empty_like(x)
    ctypes.CDLL(path).softmax_fp32(
        *[ctypes.c_void_p(t.data_ptr()) for t in (x, y)], *map(ctypes.c_int64, x.shape)
    )
    expected = torch.softmax(x.double(), dim=1)
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-10, equal_nan=True)
    assert (y[1, :2500] == 0).all()
