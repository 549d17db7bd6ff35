"""A kernel against itself: how far from 1.0 the ratio lies, and how often its interval covers it.

    python -m tests.benchmarks.a_a_ratio [--device host|cuda:0] [--evaluations 20] [--pairs 200]

The candidate is the problem's own eager baseline as a Python module, so baseline and candidate run
the same code and every difference is the harness's. `torch.compile` baselines, which the service
lets compete on a GPU, would be another kernel: an evaluation that chose one is counted apart. It
prints a table and asserts nothing. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass

from runner.evaluate import evaluate
from runner.results import Timing, Verdict
from runner.spec import EvaluationSpec, Limits, device_kind

SOURCES = {
    "vector_add": "import torch\n\n\ndef run(a, b):\n    return torch.add(a, b)\n",
    "softmax": "import torch\n\n\ndef run(x):\n    return torch.softmax(x, dim=1)\n",
    "matmul": "import torch\n\n\ndef run(A, B):\n    return torch.mm(A, B)\n",
}
DEFAULT_SETS = {"host": "host-quick", "cuda": "gpu-quick"}
BASELINE = "torch"


@dataclass(frozen=True)
class Outcome:
    """One evaluation of one case: its timing, or why there is none."""

    verdict: Verdict
    reason: str
    case: str
    timing: Timing | None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="host")
    parser.add_argument("--problems", nargs="+", default=["vector_add", "matmul"])
    parser.add_argument("--case-set", help="default: host-quick, or gpu-quick on a GPU")
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    case_set = options.case_set or DEFAULT_SETS[device_kind(options.device)]
    print(
        f"{options.device}, {case_set}, {options.evaluations} evaluations of {options.pairs} pairs,"
        f" load average at start {os.getloadavg()[0]:.2f}\n"
    )
    header = f"{'problem':<12}{'case':<22}{'timed':>6}{'ratio p50':>11}{'lowest':>9}{'highest':>9}"
    print(f"{header}{'half-width p50':>16}{'highest':>9}{'covers 1.0':>12}")
    for problem in options.problems:
        spec = EvaluationSpec(
            problem,
            SOURCES[problem],
            "triton",
            options.device,
            case_set,
            options.pairs,
            Limits(deadline_s=600),
        )
        report(problem, [each for _ in range(options.evaluations) for each in outcomes(spec)])


def outcomes(spec: EvaluationSpec) -> list[Outcome]:
    found = evaluate(spec)
    return [Outcome(c.verdict, c.reason, c.case, c.timing) for c in found.scored]


def report(problem: str, found: list[Outcome]) -> None:
    for case in dict.fromkeys(outcome.case for outcome in found):
        mine = [outcome for outcome in found if outcome.case == case]
        timings = [o.timing for o in mine if o.timing and o.timing.baseline == BASELINE]
        if timings:
            row(problem, case, timings)
        for outcome in mine:
            if outcome.timing is None:
                print(f"  not timed: {outcome.verdict.value}: {outcome.reason}")
            elif outcome.timing.baseline != BASELINE:
                print(f"  against another kernel, {outcome.timing.baseline}: not counted")


def row(problem: str, case: str, timings: list[Timing]) -> None:
    ratios = sorted(timing.speedup for timing in timings)
    widths = sorted((timing.ci95[1] - timing.ci95[0]) / 2 for timing in timings)
    covered = sum(timing.ci95[0] <= 1 <= timing.ci95[1] for timing in timings)
    print(
        f"{problem:<12}{case:<22}{len(timings):>6}{middle(ratios):>11.4f}{ratios[0]:>9.4f}"
        f"{ratios[-1]:>9.4f}{middle(widths):>15.2%}{widths[-1]:>9.2%}"
        f"{f'{covered} of {len(timings)}':>13}",
        flush=True,
    )


def middle(ordered: list[float]) -> float:
    return ordered[len(ordered) // 2]


if __name__ == "__main__":
    main()
