"""A copy of the product that a benchmark may change, and the benchmark run again on it.

The catalog of the product stays as it is: what a benchmark needs beyond it, a problem of one
element or a single baseline, is written into the copy. Needs no more than a bare device host has.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("kernels", "runner", "tests/benchmarks")
INSIDE = "WARPDECK_BENCHMARK_TREE"  # set for a benchmark that runs on a copy
ONE_ELEMENT = "one_element"
CONTRACT = """
title = "One element"
maths = "y = 2 x"
summary = "The smallest problem there can be."
teaches = "what an evaluation costs beside the kernel"

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
name = "one"
sets = ["host", "gpu"]
dtype = "fp32"
dims = { N = 1 }
"""
REFERENCE = """
import torch


def reference(x):
    return x * 2


def eager(x, *, out=None):
    return torch.mul(x, 2, out=out)


BASELINES = {"torch": eager}
"""
CASE_SETS = {"host": "host", "cuda": "gpu"}  # of ONE_ELEMENT, by kind of device
SOURCES = {  # right answers to it
    "cpp": "#include <cstdint>\n"
    'extern "C" void one_element_fp32(const float *x, float *y, int64_t N) {\n'
    "    for (int64_t i = 0; i < N; ++i) y[i] = x[i] * 2;\n}\n",
    "triton": "def run(x):\n    return x * 2\n",
}


@contextlib.contextmanager
def copied() -> Iterator[Path]:
    """The product's packages and these benchmarks in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="wd-bench-") as folder:
        tree = Path(folder) / "tree"
        for name in COPIED:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, tree / name, ignore=ignored)
        (tree / "tests" / "__init__.py").touch()
        yield tree


def add_one_element(tree: Path) -> None:
    problem = tree / "kernels" / "problems" / ONE_ELEMENT
    problem.mkdir()
    (problem / "problem.toml").write_text(CONTRACT)
    (problem / "reference.py").write_text(REFERENCE)


def keep_cases(tree: Path, names: Sequence[str]) -> None:
    """Drop every case of the copy's problems that is not named, scored or not."""
    for contract in tree.glob("kernels/problems/*/problem.toml"):
        head, *cases = re.split(r"(?m)^(?=\[\[cases\]\])", contract.read_text(encoding="utf-8"))
        kept = [case for case in cases if tomllib.loads(case)["cases"][0]["name"] in names]
        contract.write_text(head + "".join(kept or cases), encoding="utf-8")


def keep_one_baseline(tree: Path, name: str) -> None:
    """Every problem of the tree is timed against its baseline of this name, and no other."""
    for path in (tree / "kernels" / "problems").glob("*/reference.py"):
        with path.open("a") as file:
            file.write(f'\n\nBASELINES = {{"{name}": BASELINES["{name}"]}}\n')


def is_copy() -> bool:
    """Whether this process runs on a copy."""
    return os.environ.get(INSIDE) == str(ROOT)


def run_again(
    tree: Path, module: str, arguments: Sequence[str], environment: dict[str, str] | None = None
) -> int:
    """Run a module of the copy where this process runs; returns its exit status.

    Without `-P` the current folder would come first, and with it the product's own packages.
    """
    argv = [sys.executable, "-P", "-m", module, *arguments]
    added = {"PYTHONPATH": str(tree), INSIDE: str(tree), **(environment or {})}
    return subprocess.run(argv, env={**os.environ, **added}, check=False).returncode
