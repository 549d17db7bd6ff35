"""What an isolated evaluation costs beside the kernel: a kernel of one element, a warm service.

    python -m tests.benchmarks.evaluation_overhead [--evaluations 40] [--clients 1 4]

Works on a copy of `runner/` and `kernels/` in a temporary folder, to which it adds the smallest
problem there can be: the catalog of the product stays as it is. Clients are threads of a process,
as in a worker; they share its zygotes and meet at the lease of the device. It prints p50 and p95
in milliseconds, phase by phase, and asserts nothing. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
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
sets = ["host"]
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
SOURCES = {
    "cpp": "#include <cstdint>\n"
    'extern "C" void one_element_fp32(const float *x, float *y, int64_t N) {\n'
    "    for (int64_t i = 0; i < N; ++i) y[i] = x[i] * 2;\n}\n",
    "triton": "def run(x):\n    return x * 2\n",
}
NAMES = {"cpp": "C++", "triton": "Python (torch alone)"}


@dataclass
class Sample:
    """Milliseconds of one evaluation by phase; what the last phase took includes the clean-up."""

    phases: dict[str, float] = field(default_factory=dict)
    total: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=40, help="in all, per row of the table")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        measure(options.evaluations, options.clients)
        return
    with tempfile.TemporaryDirectory(prefix="wd-bench-") as folder:
        copy = Path(folder) / "tree"
        for name in ("runner", "kernels"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        problem = copy / "kernels" / "problems" / "one_element"
        problem.mkdir()
        (problem / "problem.toml").write_text(CONTRACT)
        (problem / "reference.py").write_text(REFERENCE)
        shutil.copy(__file__, copy / "benchmark.py")
        arguments = ["--inside", "--evaluations", str(options.evaluations), "--clients"]
        arguments += map(str, options.clients)
        subprocess.run([sys.executable, "benchmark.py", *arguments], cwd=copy, check=True)


def measure(evaluations: int, clients: list[int]) -> None:
    load = os.getloadavg()
    print(
        f"load average at start {load[0]:.2f}; {evaluations} evaluations a row; p50 / p95 in ms\n"
    )
    print(f"{'candidate':<22}{'clients':>7}  {'whole':>15}{'without compiler':>18}  phases (p50)")
    for language in SOURCES:
        evaluate_once(language)  # warm: the zygotes start with the first evaluation
        for count in clients:
            row(language, count, samples(language, evaluations, count))


def samples(language: str, evaluations: int, clients: int) -> list[Sample]:
    found: list[Sample] = []
    left = iter(range(evaluations))
    lock = threading.Lock()

    def client() -> None:
        while True:
            with lock:
                if next(left, None) is None:
                    return
            sample = evaluate_once(language)
            with lock:
                found.append(sample)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def evaluate_once(language: str) -> Sample:
    from runner.evaluate import evaluate
    from runner.results import Verdict
    from runner.spec import EvaluationSpec

    marks: list[tuple[str, float]] = []

    def progress(phase: str) -> None:
        marks.append((phase.split()[0], time.perf_counter()))

    started = time.perf_counter()
    spec = EvaluationSpec("one_element", SOURCES[language], language, pairs=10)
    found = evaluate(spec, progress=progress)
    ended = time.perf_counter()
    if found.verdict not in (Verdict.passed, Verdict.timing_disputed):
        raise SystemExit(f"{found.verdict.value}: {found.reason}\n{found.output}")
    sample = Sample(total=(ended - started) * 1e3)
    for (phase, begun), (_, done) in zip(marks, [*marks[1:], ("", ended)], strict=True):
        sample.phases[phase] = sample.phases.get(phase, 0.0) + (done - begun) * 1e3
    return sample


def row(language: str, clients: int, found: list[Sample]) -> None:
    whole = [sample.total for sample in found]
    rest = [sample.total - sample.phases["compiling"] for sample in found]
    phases = "  ".join(
        f"{name} {quantile([sample.phases.get(name, 0.0) for sample in found], 0.5):.1f}"
        for name in found[0].phases
    )
    print(f"{NAMES[language]:<22}{clients:>7}  {pair(whole):>15}{pair(rest):>18}  {phases}")


def pair(values: list[float]) -> str:
    return f"{quantile(values, 0.5):.1f} / {quantile(values, 0.95):.1f}"


def quantile(values: list[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


if __name__ == "__main__":
    main()
