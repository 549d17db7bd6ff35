"""What an isolated evaluation costs beside the kernel: a kernel of one element, a warm service.

    python -m tests.benchmarks.evaluation_overhead [--device host|cuda:0] [--evaluations 40]
        [--pairs 10 30] [--clients 1 4] [--json FILE]

Milliseconds, p50 and p95 over the evaluations of a row:

    whole      wall time of `evaluate(spec)`, from the call until the result is there
    kernel     the timed calls themselves: of baseline and candidate, by their own clocks, all pairs
    overhead   whole − kernel − compiling: what a service without any cost of its own would save
    phases     where the whole goes, by the phases that an evaluation reports: `timing` holds the
               kernel, fresh inputs before the pairs and the judging of timed outputs; `clearing`
               the clean-up of both process trees; `waiting` that of other clients

The kernel is samples × the sum of both medians, since a result keeps no single calls. With several
`--pairs` a line for one client says what each further pair costs. On a GPU every evaluation
opens a fresh CUDA context in the candidate's process.

Works on a copy of the tree, to which it adds the smallest problem there can be. Clients are threads
of a process, as in a worker; they share its zygotes and meet at the lease of the device. It asserts
nothing. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.evaluate import evaluate
from runner.results import Evaluation, Verdict
from runner.spec import EvaluationSpec, device_kind
from tests.benchmarks import tree
from tests.benchmarks.figures import both, circumstances, quantile, write

LANGUAGES = {"host": ("cpp", "triton"), "cuda": ("triton",)}
NAMES = {"cpp": "C++", "triton": "Python (torch alone)"}
ACCEPTED = (Verdict.passed, Verdict.timing_disputed)  # a busy machine disputes a clock


@dataclass(frozen=True)
class Sample:
    """Milliseconds of one evaluation; `kernel` is None when its clock was disputed."""

    whole: float
    kernel: float | None
    phases: dict[str, float]

    @property
    def overhead(self) -> float | None:
        if self.kernel is None:
            return None
        return self.whole - self.kernel - self.phases["compiling"]


@dataclass(frozen=True)
class Row:
    """All evaluations of one candidate with so many clients and pairs."""

    candidate: str
    clients: int
    pairs: int
    samples: list[Sample]

    def values(self, name: str) -> list[float]:
        found = [getattr(sample, name) for sample in self.samples]
        return [value for value in found if value is not None]

    def phase(self, name: str) -> float:
        return quantile([sample.phases.get(name, 0.0) for sample in self.samples], 0.5)

    def document(self) -> dict[str, Any]:
        measured = {name: self.values(name) for name in ("whole", "kernel", "overhead")}
        return {
            "candidate": self.candidate,
            "clients": self.clients,
            "pairs": self.pairs,
            "evaluations": len(self.samples),
            "disputed": len(self.samples) - len(measured["kernel"]),
            **{f"{name}_ms": percentiles(found) for name, found in measured.items()},
            "phases_p50_ms": {name: self.phase(name) for name in self.samples[0].phases},
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="host")
    parser.add_argument("--evaluations", type=int, default=40, help="in all, per row of the table")
    parser.add_argument("--pairs", type=int, nargs="+", default=[10, 30])
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    if not tree.is_copy():
        with tree.copied() as copy:
            tree.add_one_element(copy)
            return tree.run_again(copy, "tests.benchmarks.evaluation_overhead", sys.argv[1:])
    document = measure(options)
    if options.json:
        write(options.json, document)
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    rows: list[Row] = []
    setting: dict[str, Any] = {}
    for language in LANGUAGES[device_kind(options.device)]:
        spec = EvaluationSpec(
            tree.ONE_ELEMENT,
            tree.SOURCES[language],
            language,
            options.device,
            tree.CASE_SETS[device_kind(options.device)],
        )
        warm = evaluate(spec)  # the zygotes start with the first evaluation
        if not setting:
            setting = circumstances(warm)
            print_head(setting, options)
        for clients in options.clients:
            alike = [measured_row(spec, clients, pairs, options) for pairs in options.pairs]
            if clients == 1:
                print_pair_cost(alike)
            rows += alike
    return {**setting, "rows": [row.document() for row in rows]}


def measured_row(
    spec: EvaluationSpec, clients: int, pairs: int, options: argparse.Namespace
) -> Row:
    asked = EvaluationSpec(
        spec.problem, spec.source, spec.language, spec.device, spec.case_set, pairs
    )
    found = samples(asked, options.evaluations, clients)
    row = Row(NAMES[spec.language], clients, pairs, found)
    print_row(row)
    return row


def samples(spec: EvaluationSpec, evaluations: int, clients: int) -> list[Sample]:
    found: list[Sample] = []
    failed: list[BaseException] = []
    left = iter(range(evaluations))
    lock = threading.Lock()

    def client() -> None:
        while not failed:
            with lock:
                if next(left, None) is None:
                    return
            try:
                sample = evaluate_once(spec)
            except BaseException as error:
                failed.append(error)
                return
            with lock:
                found.append(sample)

    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return found


def evaluate_once(spec: EvaluationSpec) -> Sample:
    marks: list[tuple[str, float]] = []

    def progress(phase: str) -> None:
        marks.append((phase.split()[0], time.perf_counter()))

    started = time.perf_counter()
    found = evaluate(spec, progress=progress)
    ended = time.perf_counter()
    if found.verdict not in ACCEPTED:
        raise SystemExit(f"{found.verdict.value}: {found.reason}\n{found.output}")
    phases: dict[str, float] = {}
    for (phase, begun), (_, done) in zip(marks, [*marks[1:], ("", ended)], strict=True):
        phases[phase] = phases.get(phase, 0.0) + (done - begun) * 1e3
    return Sample((ended - started) * 1e3, kernel_ms(found), phases)


def kernel_ms(found: Evaluation) -> float | None:
    timings = [case.timing for case in found.scored]
    if any(timing is None for timing in timings):
        return None
    return sum(t.samples * (t.median_us + t.baseline_us) / 1e3 for t in timings if t)


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    return {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95)} if values else None


def print_head(setting: dict[str, Any], options: argparse.Namespace) -> None:
    print(f"{setting['device']['model']}; {setting['isolation'].partition(':')[0]}")
    print(f"load average at start {setting['load_average_1min']:.2f};", end=" ")
    print(f"{options.evaluations} evaluations a row; p50 / p95 in ms\n")
    print(f"{'candidate':<22}{'clients':>7}{'pairs':>6}{'whole':>17}{'overhead':>17}", end="")
    print(f"{'kernel':>12}{'disputed':>9}  phases (p50)")


def print_row(row: Row) -> None:
    kernel = row.values("kernel")
    phases = "  ".join(f"{name} {row.phase(name):.1f}" for name in row.samples[0].phases)
    print(f"{row.candidate:<22}{row.clients:>7}{row.pairs:>6}", end="")
    print(f"{both(row.values('whole')):>17}{both(row.values('overhead')):>17}", end="")
    print(f"{f'{quantile(kernel, 0.5):.3f}' if kernel else '–':>12}", end="")
    print(f"{len(row.samples) - len(kernel):>9}  {phases}", flush=True)


def print_pair_cost(rows: list[Row]) -> None:
    """What a further pair costs beyond its kernel, from the rows with fewest and most pairs."""
    first, last = min(rows, key=lambda r: r.pairs), max(rows, key=lambda r: r.pairs)
    if first.pairs == last.pairs or not (first.values("overhead") and last.values("overhead")):
        return
    added = quantile(last.values("overhead"), 0.5) - quantile(first.values("overhead"), 0.5)
    print(f"{'':<22}a further pair costs {added / (last.pairs - first.pairs):.2f} ms of overhead")


if __name__ == "__main__":
    sys.exit(main())
