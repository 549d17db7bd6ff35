"""How long an analysis takes, and what it finds: `python -m tests.benchmarks.resource_analysis`.

Every kernel of the zoo on each scored GPU case, then the corpus of planted faults and look-alikes.
Cold is the first analysis of a process, which starts the station; all others are warm. No result of
a compiler is kept between analyses.
"""

from __future__ import annotations

import re
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from kernels.catalog import load_all
from runner.analysis import station
from runner.analysis.analyze import AnalysisSpec, analyze
from runner.analysis.findings import AnalysisVerdict, Severity
from runner.console import table

CORPUS = Path(__file__).parents[1] / "analysis" / "resources"
HEADER = re.compile(r'"""(\w+) (\S+): (\w+)\. ')
REPEATS = 3


@dataclass(frozen=True)
class Row:
    """`found` is whether the verdict and the kinds of findings are those that were expected."""

    name: str
    seconds: tuple[float, ...]
    verdict: str
    found: bool


def timed(name: str, spec: AnalysisSpec, expected: str) -> Row:
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        analysis = analyze(spec).analysis
        seconds.append(time.perf_counter() - started)
    kinds = {each.kind.value for each in analysis.findings if each.severity is not Severity.info}
    clean = analysis.verdict is AnalysisVerdict.clean
    found = clean if expected == "clean" else kinds == {expected}
    return Row(name, tuple(seconds), analysis.verdict.value, found)


def zoo() -> list[Row]:
    return [
        timed(
            f"{kernel.name} {case.name}",
            AnalysisSpec(problem.slug, kernel.source, case=case.name),
            "clean",
        )
        for problem in load_all()
        for kernel in problem.kernels("triton")
        for case in problem.cases_in("gpu")
        if case.scored
    ]


def corpus(folder: str) -> list[Row]:
    rows = []
    for path in sorted((CORPUS / folder).glob("*.py")):
        header = HEADER.match(path.read_text())
        assert header is not None, path
        spec = AnalysisSpec(header[1], path.read_text(), case=header[2])
        rows.append(timed(f"{path.stem}: {header[3]}", spec, header[3]))
    return rows


def cold() -> float:
    """The first analysis of a process: the station starts, imports torch and Triton, and forks."""
    station.stop()
    problem = load_all()[-1]
    started = time.perf_counter()
    analyze(AnalysisSpec(problem.slug, problem.kernels("triton")[0].source))
    return time.perf_counter() - started


def main() -> None:
    first = cold()
    groups = {"zoo": zoo(), "faulty": corpus("faulty"), "clean": corpus("clean")}
    rows = [
        (
            group,
            row.name,
            f"{statistics.median(row.seconds):.2f}",
            row.verdict,
            "" if row.found else "WRONG",
        )
        for group, members in groups.items()
        for row in members
    ]
    print(table(("", "candidate", "seconds", "verdict", ""), rows, right=(2,)))
    print(f"\ncold: {first:.2f} s")
    for group, members in groups.items():
        medians = [statistics.median(row.seconds) for row in members]
        right = sum(row.found for row in members)
        middle, largest = statistics.median(medians), max(medians)
        print(f"{group}: median {middle:.2f} s, largest {largest:.2f} s, warm;", end=" ")
        print(f"as expected {right} of {len(members)}")


if __name__ == "__main__":
    main()
