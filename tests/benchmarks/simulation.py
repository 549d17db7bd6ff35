"""Simulation in the instrumented interpreter, over zoo and corpus: what is found, what it costs.

    python -m tests.benchmarks.simulation [--repeats 5] [--zoo] [--json FILE]

A row a kernel: what must be found (line in the file), what was missed or found besides, programs
run, and the median wall-clock time of `simulate` with its process warm. The first line is the cold
one: a new parent starts Python, torch and Triton for it. It asserts nothing; the last lines count
detections and false alarms. `--zoo` leaves the corpus out. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from kernels.catalog import load_all
from runner.analysis import simulate_station
from runner.analysis.findings import Analysis
from runner.analysis.simulate import SimulationSpec, simulate
from tests.analysis.simulate.corpus import Entry, entries
from tests.benchmarks.figures import quantile, write


@dataclass(frozen=True)
class Row:
    """One kernel; `wrong` is what was missed or found without being there, empty if nothing."""

    kind: str
    kernel: str
    case: str
    programs: int
    verdict: str
    wrong: str
    median_s: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--zoo", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    cold_s = _cold()
    print(f"cold: {cold_s:.2f} s for the first kernel of the zoo")
    rows = []
    kinds = ("zoo",) if arguments.zoo else ("zoo", "faulty", "clean")
    for kind in kinds:
        for row in _rows(kind, arguments.repeats if kind == "zoo" else 1):
            rows.append(row)
            _show(row)
    _summarise(rows)
    if arguments.json:
        write(arguments.json, {"cold_s": cold_s, "rows": [asdict(row) for row in rows]})


def _cold() -> float:
    simulate_station.stop()
    problem = load_all()[0]
    source = problem.kernels("triton")[0].source
    return _timed(lambda: simulate(SimulationSpec(problem.slug, source)), 1)[1]


def _rows(kind: str, repeats: int) -> Iterator[Row]:
    if kind != "zoo":
        for entry in entries(kind):
            found, median_s = _timed(entry.simulate, repeats)
            yield _row(kind, entry.path.stem, found, _wrong(entry, found), median_s)
        return
    for problem in load_all():
        for kernel in problem.kernels("triton"):
            spec = SimulationSpec(problem.slug, kernel.source, file=kernel.path.name)
            found, median_s = _timed(lambda spec=spec: simulate(spec), repeats)  # type: ignore[misc]
            wrong = ", ".join(f"false {each.kind.value}" for each in found.findings)
            yield _row(kind, kernel.path.stem, found, wrong, median_s)


def _timed(call: Callable[[], Analysis], repeats: int) -> tuple[Analysis, float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        found = call()
        times.append(time.perf_counter() - start)
    return found, quantile(times, 0.5)


def _row(kind: str, kernel: str, found: Analysis, wrong: str, median_s: float) -> Row:
    launches = found.resources.get("launches", [])
    programs = sum(launch["simulated"] for launch in launches)
    case = str(found.resources.get("case", ""))
    return Row(kind, kernel, case, programs, found.verdict.value, wrong, median_s)


def _wrong(entry: Entry, found: Analysis) -> str:
    missed = [f"missed {kind.value} at {line}" for kind, line in sorted(entry.missed(found))]
    false = [f"false {kind.value} at {line}" for kind, line in sorted(entry.false_alarms(found))]
    return ", ".join(missed + false)


def _show(row: Row) -> None:
    print(
        f"{'!' if row.wrong else ' '} {row.kind:<7}{row.kernel:<28}{row.case:<22}"
        f"{row.programs:>6} programs {row.verdict:<11}{row.median_s:>6.2f} s  {row.wrong}"
    )


def _summarise(rows: list[Row]) -> None:
    for kind, words in {"faulty": "detected at the line", "clean": "no false alarm"}.items():
        of_kind = [row for row in rows if row.kind == kind]
        if of_kind:
            print(f"{words:<22}{sum(not row.wrong for row in of_kind)} of {len(of_kind)}")
    for kind in ("zoo", "faulty", "clean"):
        times = [row.median_s for row in rows if row.kind == kind]
        if times:
            print(
                f"time, {kind:<16}{quantile(times, 0.5):.2f} s median, {max(times):.2f} s at most"
            )


if __name__ == "__main__":
    main()
