"""The search for broken barrier protocols, over its corpus: what is found, and what it costs.

    python -m tests.benchmarks.protocols [--repeats 5] [--json FILE]

A row a kernel: what the first line of its file says must be found, what was found, how many
configurations and states were searched, and the median time of the search. The text of the kernel
is compiled beforehand and not counted. It asserts nothing; the last lines count detections and
false alarms. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.analysis.findings import Analysis
from runner.analysis.protocol import examine_protocol
from tests.analysis.protocol.compiling import FILES, ttgir
from tests.benchmarks.figures import quantile, write


@dataclass(frozen=True)
class Row:
    kernel: str
    expected: str
    found: str
    verdict: str
    configurations: int
    states: int
    median_ms: float

    @property
    def right(self) -> bool:
        return self.found == self.expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rows = []
    for path in FILES:
        rows.append(measured(path, arguments.repeats))
        show(rows[-1])
    summarise(rows)
    if arguments.json:
        write(arguments.json, {"rows": [asdict(row) for row in rows]})


def measured(path: Path, repeats: int) -> Row:
    text, times = ttgir(path), []
    for _ in range(repeats):
        start = time.perf_counter()
        analysis = examine_protocol(text)
        times.append(1e3 * (time.perf_counter() - start))
    configurations, states = effort(analysis)
    return Row(
        f"{path.parent.name}/{path.stem}",
        path.read_text().splitlines()[0].removeprefix("# "),
        findings(analysis),
        analysis.verdict.value,
        configurations,
        states,
        quantile(times, 0.5),
    )


def findings(analysis: Analysis) -> str:
    found = [
        f"{finding.kind.value} at line {finding.source.line if finding.source else '?'}"
        for finding in analysis.findings
    ]
    return ", ".join(found) or "clean"


def effort(analysis: Analysis) -> tuple[int, int]:
    """Configurations and states, as the analysis itself says in its scope."""
    found = re.search(r"in (\d+) configurations?, ([\d,]+) states", analysis.scope[0])
    return (int(found[1]), int(found[2].replace(",", ""))) if found else (0, 0)


def show(row: Row) -> None:
    mark = " " if row.right else "!"
    print(
        f"{mark} {row.kernel:<56} {row.found:<36} {row.configurations:>4} {row.states:>7,}"
        f" {row.median_ms:>8.1f} ms"
    )


def summarise(rows: list[Row]) -> None:
    faulty = [row for row in rows if row.expected != "clean"]
    clean = [row for row in rows if row.expected == "clean"]
    times = [row.median_ms for row in rows]
    print(f"detected at the line {sum(row.right for row in faulty)} of {len(faulty)}")
    print(f"false alarms         {sum(not row.right for row in clean)} of {len(clean)}")
    print(f"time a kernel        {quantile(times, 0.5):.0f} ms median, {max(times):.0f} ms at most")


if __name__ == "__main__":
    main()
