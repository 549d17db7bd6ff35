"""Many evaluations in a row, some of them hostile: does the machine stay as it was?

    python -m tests.benchmarks.soak [--device host|cuda:0] [--evaluations 200] [--every 10]
        [--json FILE]

Every tenth candidate tries to harm the machine, each kind in turn; the others are honest. Compared
are the moments before and after, both with warm zygotes, and again before the first evaluation and
after the service was stopped: processes, open descriptors, threads, temporary files, System V
objects, memory and processes of the GPU; what the next candidate sees inside the sandbox; and the
resident memory of this process and of its zygotes over time.

Exit status 1 when something stayed behind, when a result was no verdict on the kernel
(`harness_error`, or an exception), or when a kind got a verdict that it must not get.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from runner.evaluate import evaluate, keeper
from runner.evaluate.devices import device_info
from runner.results import Evaluation, Verdict
from runner.spec import EvaluationSpec, Limits, device_kind
from tests.benchmarks import hostile, inventory, tree
from tests.benchmarks.figures import circumstances, quantile, write
from tests.benchmarks.hostile import Hostile
from tests.benchmarks.inventory import Difference, Growth

HONEST = {
    language: Hostile(f"honest {name}", tree.SOURCES[language], hostile.TIMED, Limits(), language)
    for language, name in (("triton", "Python"), ("cpp", "C++"))
}
CPP_EVERY = 4  # compiling takes longer than the rest
OURSELVES = "this process"
PROBE_SOURCE = (
    """import json
import os


def lines(path):
    with open(path) as file:
        return len(file.read().splitlines()) - 1


print(json.dumps({
    "processes": sum(name.isdigit() for name in os.listdir("/proc")),
    "files in /dev/shm": len(os.listdir("/dev/shm")),
    "files in the work folder": sum(len(found) for _, _, found in os.walk("..")),
    "System V objects": sum(lines("/proc/sysvipc/" + kind) for kind in ("shm", "sem", "msg")),
}))
"""
    + hostile.DOUBLE
)
PROBE = Hostile("probe", PROBE_SOURCE, hostile.TIMED)


@dataclass
class Tally:
    """What became of one kind of candidate."""

    verdicts: Counter[str] = field(default_factory=Counter)
    walls_s: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "count": len(self.walls_s),
            "verdicts": dict(self.verdicts),
            "wall_p50_s": quantile(self.walls_s, 0.5),
            "wall_p95_s": quantile(self.walls_s, 0.95),
            "faults": self.faults,
        }


@dataclass
class Soak:
    """One soak: how it went so far."""

    device: str
    tallies: dict[str, Tally] = field(default_factory=lambda: defaultdict(Tally))
    resident: dict[tuple[str, int], list[float]] = field(default_factory=lambda: defaultdict(list))

    def run(self, candidate: Hostile) -> Evaluation | None:
        """Evaluate and note verdict and time; None when that raised."""
        spec = EvaluationSpec(
            tree.ONE_ELEMENT,
            candidate.source,
            candidate.language,
            self.device,
            tree.CASE_SETS[device_kind(self.device)],
            pairs=10,
            limits=candidate.limits,
        )
        tally, started = self.tallies[candidate.name], time.perf_counter()
        try:
            found = evaluate(spec)
        except Exception as error:  # untyped: what the soak is looking for
            tally.verdicts["exception"] += 1
            tally.faults.append(f"{type(error).__name__}: {error}")
            return None
        finally:
            tally.walls_s.append(time.perf_counter() - started)
        tally.verdicts[found.verdict.value] += 1
        tally.faults += faults(candidate, found)
        return found

    def note_memory(self) -> None:
        inventory.collect_orphans()
        for name, pid in {OURSELVES: os.getpid(), **inventory.zygotes()}.items():
            if (kib := inventory.resident_kib(pid)) is not None:
                self.resident[name, pid].append(kib)

    def growths(self) -> list[Growth]:
        """Of each kind of process, the one that lived longest: hostile candidates kill some."""
        longest: dict[str, list[float]] = {}
        for (name, _), kib in self.resident.items():
            longest[name] = max(longest.get(name, []), kib, key=len)
        return [Growth.of(name, kib) for name, kib in longest.items()]


@dataclass
class Report:
    """What a soak found."""

    setting: dict[str, Any]
    evaluations: int
    every: int
    wall_s: float = 0.0
    kinds: dict[str, Tally] = field(default_factory=dict)
    while_it_runs: list[Difference] = field(default_factory=list)
    after_it_stopped: list[Difference] = field(default_factory=list)
    growths: list[Growth] = field(default_factory=list)
    elsewhere: Counter[str] = field(default_factory=Counter)

    @property
    def leaks(self) -> list[str]:
        """What stayed behind, in words."""
        rows = [*self.while_it_runs, *self.after_it_stopped]
        found = [f"{row.what}: {dict(row.more)}" for row in rows if row.more]
        return found + [f"resident memory of {g.what}" for g in self.growths if g.leaked]

    @property
    def faults(self) -> list[str]:
        return [f"{name}: {words}" for name, tally in self.kinds.items() for words in tally.faults]

    @property
    def clean(self) -> bool:
        return not self.leaks and not self.faults

    def document(self) -> dict[str, Any]:
        return {
            **self.setting,
            "evaluations": self.evaluations,
            "hostile_one_in": self.every,
            "wall_s": self.wall_s,
            "clean": self.clean,
            "leaks": self.leaks,
            "faults": self.faults,
            "kinds": {name: tally.document() for name, tally in self.kinds.items()},
            "while_it_runs": [row.document() for row in self.while_it_runs],
            "after_it_stopped": [row.document() for row in self.after_it_stopped],
            "resident_memory": [asdict(growth) for growth in self.growths],
            "new_elsewhere": dict(self.elsewhere),
        }


def faults(candidate: Hostile, found: Evaluation) -> list[str]:
    """What is wrong with a result: not typed, not what its kind must get, or not marked."""
    words = []
    if found.verdict is Verdict.harness_error or found.verdict not in candidate.expected:
        words.append(f"{found.verdict.value}: {found.reason}")
    failed = {check.check for check in found.integrity if not check.passed}
    if candidate.fails and candidate.fails not in failed:
        words.append(f"{candidate.fails} does not show what it did")
    if len(found.output.encode()) > 2 * candidate.limits.output_bytes:
        words.append(f"{len(found.output)} characters of output were kept")
    return words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="host")
    parser.add_argument("--evaluations", type=int, default=200)
    parser.add_argument("--every", type=int, default=10, help="one in so many is hostile")
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    options = parser.parse_args()
    if not tree.is_copy():
        return _on_a_copy()
    report = soak(options.device, options.evaluations, options.every)
    print_report(report)
    if options.json:
        write(options.json, report.document())
    return 0 if report.clean else 1


def _on_a_copy() -> int:
    """All temporary files go to a folder of our own, but the device's lease is everybody's."""
    with tree.copied() as copy:
        tree.add_one_element(copy)
        own = copy.parent / "tmp"
        own.mkdir()
        leases = os.environ.get("WARPDECK_LEASES", tempfile.gettempdir())
        environment = {"TMPDIR": str(own), "WARPDECK_LEASES": leases}
        return tree.run_again(copy, "tests.benchmarks.soak", sys.argv[1:], environment)


def soak(device: str, evaluations: int, every: int) -> Report:
    """The whole of it; prints as it goes."""
    inventory.adopt_orphans()
    since, run = inventory.ticks(), Soak(device)
    gpu = device_info(device).uuid if device_kind(device) == "cuda" else ""
    cold = inventory.take(gpu)
    first = warm_up(run)
    isolated = first.isolation.startswith("bubblewrap:")
    report = Report(circumstances(first), evaluations, every)
    print_head(report)
    warm, started = inventory.take(gpu), time.perf_counter()
    for candidate in sequence(device_kind(device), evaluations, every, isolated):
        run.run(candidate)
        run.note_memory()
    report.wall_s = time.perf_counter() - started
    last = run.run(PROBE)
    report.while_it_runs = inventory.settled(warm, lambda: inventory.take(gpu))
    if isolated and last is not None:
        report.while_it_runs.append(Difference("inside the sandbox", inside(first), inside(last)))
    keeper.stop_all()
    report.after_it_stopped = inventory.settled(cold, lambda: inventory.take(gpu))
    report.kinds, report.growths = run.tallies, run.growths()
    report.elsewhere = inventory.elsewhere(since)
    return report


def warm_up(run: Soak) -> Evaluation:
    """One honest evaluation of each language, which starts the zygotes; then the probe's."""
    for candidate in honest(device_kind(run.device)):
        run.run(candidate)
    found = run.run(PROBE)
    if found is None or found.verdict not in PROBE.expected:
        raise SystemExit(f"not even honest kernels are evaluated here: {dict(run.tallies)}")
    run.tallies.clear()
    return found


def honest(kind: str) -> list[Hostile]:
    return [HONEST["triton"], HONEST["cpp"]] if kind == "host" else [HONEST["triton"]]


def sequence(kind: str, evaluations: int, every: int, isolated: bool) -> Iterator[Hostile]:
    """The hostile kinds in turn, with honest kernels between them."""
    harmful = itertools.cycle(hostile.candidates(kind, isolated=isolated))
    for number in range(1, evaluations + 1):
        if number % every == 0:
            yield next(harmful)
        else:
            yield honest(kind)[-1 if number % CPP_EVERY == 0 else 0]


def inside(found: Evaluation) -> Counter[str]:
    """What the probe saw: the last line that it wrote."""
    seen: dict[str, int] = json.loads(found.output.strip().splitlines()[-1])
    return Counter(seen)


def print_head(report: Report) -> None:
    setting = report.setting
    print(f"{setting['device']['model']}; {setting['isolation']}")
    print(f"load average at start {setting['load_average_1min']:.2f};", end=" ")
    print(f"{report.evaluations} evaluations, one in {report.every} hostile\n", flush=True)


def print_report(report: Report) -> None:
    print(f"{'candidate':<38}{'count':>6}{'wall p50':>10}{'p95':>8}  verdicts")
    for name, tally in report.kinds.items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in tally.verdicts.items())
        walls = (quantile(tally.walls_s, 0.5), quantile(tally.walls_s, 0.95))
        print(f"{name:<38}{len(tally.walls_s):>6}{walls[0]:>8.2f} s{walls[1]:>6.2f} s  {verdicts}")
        for words in tally.faults:
            print(f"    FAULT {words}")
    for title, rows in (
        ("before → after, zygotes warm", report.while_it_runs),
        ("before the first evaluation → after the service was stopped", report.after_it_stopped),
    ):
        print(f"\n{title}")
        for row in rows:
            print(
                f"  {row.what:<22}{row.before.total():>7}{row.after.total():>7}  {words_for(row)}"
            )
    print(f"\n{'resident memory, KiB':<24}{'first':>9}{'last':>9}{'an evaluation':>15}")
    for growth in report.growths:
        print(f"  {growth.what:<22}{growth.first_kib:>9.0f}{growth.last_kib:>9.0f}", end="")
        print(f"{growth.slope_kib:>+15.2f}  {'LEAK' if growth.leaked else 'steady'}", end="")
        print(f" over {growth.samples} evaluations")
    if report.elsewhere:
        print(f"\nnot ours, as far as we know, but new: {dict(report.elsewhere)}")
    print(f"\n{report.wall_s:.0f} s; {'clean' if report.clean else 'NOT CLEAN'}")


def words_for(row: Difference) -> str:
    more = ", ".join(f"{count} {name}" for name, count in row.more.items())
    return f"LEAK: {more}" if more else "as before"


if __name__ == "__main__":
    sys.exit(main())
