"""A kernel against itself: how far from 1.0 the ratio lies, and how often its interval covers it.

    python -m tests.benchmarks.a_a_ratio [--device host|cuda:0] [--problems softmax rmsnorm …]
        [--case-set SET] [--cases NAME …] [--evaluations 20] [--pairs 200] [--json FILE]

The candidate is the problem's own reference file, whose eager baseline it runs, so baseline and
candidate are the same code and every difference is the harness's. On a GPU the service lets
compiled baselines compete, which would be another kernel: this works on a copy of the tree in which
the eager one is the only one, so that every evaluation counts. By case:

    bias        median of the ratios − 1
    half-width  half of the 95% interval
    covers 1.0  in how many evaluations the interval holds 1.0; 95% of them should

It asserts nothing. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernels.catalog import load_problem, slugs
from runner.evaluate import evaluate
from runner.results import CaseResult, Timing
from runner.spec import EvaluationSpec, Limits, device_kind
from tests.benchmarks import tree
from tests.benchmarks.figures import circumstances, quantile, write

DEFAULT_SETS = {"host": "host-quick", "cuda": "gpu-quick"}
BASELINE = "torch"
CANDIDATE = f'\n\nrun = BASELINES["{BASELINE}"]\n'  # appended to a reference file


@dataclass(frozen=True)
class Row:
    """One case of a problem, over all evaluations."""

    problem: str
    case: str
    found: list[CaseResult]

    @property
    def timings(self) -> list[Timing]:
        return [result.timing for result in self.found if result.timing]

    @property
    def ratios(self) -> list[float]:
        return [timing.speedup for timing in self.timings]

    @property
    def half_widths(self) -> list[float]:
        return [(timing.ci95[1] - timing.ci95[0]) / 2 for timing in self.timings]

    @property
    def bias(self) -> float | None:
        return quantile(self.ratios, 0.5) - 1 if self.timings else None

    @property
    def covered(self) -> int:
        return sum(timing.ci95[0] <= 1 <= timing.ci95[1] for timing in self.timings)

    @property
    def untimed(self) -> Counter[str]:
        """Why an evaluation has no ratio → how often."""
        return Counter(f"{r.verdict.value}: {r.reason}" for r in self.found if r.timing is None)

    def document(self) -> dict[str, Any]:
        return {
            "problem": self.problem,
            "case": self.case,
            "evaluations": len(self.found),
            "timed": len(self.timings),
            "baselines": dict(Counter(timing.baseline for timing in self.timings)),
            "bias": self.bias,
            "covers_one": self.covered,
            "ratios": self.ratios,
            "ci95": [list(timing.ci95) for timing in self.timings],
            "half_widths": self.half_widths,
            "median_us": [timing.median_us for timing in self.timings],
            "pairs": [timing.samples for timing in self.timings],
            "untimed": dict(self.untimed),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="host")
    parser.add_argument("--problems", nargs="+", default=slugs(), choices=slugs())
    parser.add_argument("--case-set", help="default: host-quick, or gpu-quick on a GPU")
    parser.add_argument("--cases", nargs="+", help="these scored cases alone; default: all")
    parser.add_argument("--evaluations", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if not tree.is_copy():
        with tree.copied() as copy:
            tree.keep_one_baseline(copy, BASELINE)
            if options.cases:
                tree.keep_cases(copy, options.cases)
            return tree.run_again(copy, "tests.benchmarks.a_a_ratio", sys.argv[1:])
    options.case_set = options.case_set or DEFAULT_SETS[device_kind(options.device)]
    document = measure(options)
    if options.json:
        write(options.json, document)
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows: list[Row] = []
    setting: dict[str, Any] = {}
    for problem in options.problems:
        spec = spec_of(problem, options)
        warm = evaluate(spec)  # first touches of a fresh process and device are not what is asked
        if not setting:
            setting = circumstances(warm)
            print_head(setting, options)
        results = [c for _ in range(options.evaluations) for c in evaluate(spec).scored]
        for case in dict.fromkeys(result.case for result in results):
            row = Row(problem, case, [result for result in results if result.case == case])
            print_row(row)
            rows.append(row)
    asked = {"case_set": options.case_set, "pairs": options.pairs}
    return {**setting, **asked, "rows": [row.document() for row in rows]}


def spec_of(problem: str, options: argparse.Namespace) -> EvaluationSpec:
    source = load_problem(problem).reference_path.read_text(encoding="utf-8") + CANDIDATE
    limits = Limits(deadline_s=600)
    return EvaluationSpec(
        problem, source, "triton", options.device, options.case_set, options.pairs, limits
    )


def print_head(setting: dict[str, Any], options: argparse.Namespace) -> None:
    print(
        f"{setting['device']['model']}, {options.case_set}, {options.evaluations} evaluations",
        end="",
    )
    print(f" of {options.pairs} pairs, load average {setting['load_average_1min']:.2f}\n")
    print(
        f"{'problem':<12}{'case':<22}{'baseline':<10}{'timed':>6}{'bias':>9}{'lowest':>9}", end=""
    )
    print(f"{'highest':>9}{'half-width p50':>16}{'highest':>9}{'covers 1.0':>12}")


def print_row(row: Row) -> None:
    print(f"{row.problem:<12}{row.case:<22}", end="")
    if row.bias is not None:
        names = ", ".join(sorted({timing.baseline for timing in row.timings}))
        print(f"{names:<10}{len(row.timings):>6}{row.bias:>+9.2%}", end="")
        print(f"{min(row.ratios):>9.4f}{max(row.ratios):>9.4f}", end="")
        print(f"{quantile(row.half_widths, 0.5):>16.2%}{max(row.half_widths):>9.2%}", end="")
        print(f"{f'{row.covered} of {len(row.timings)}':>12}", end="")
    print(flush=True)
    for words, count in row.untimed.items():
        print(f"  not timed, {count} times: {words}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
