"""What the analysis says of the zoo's Triton kernels, against what Nsight Compute says on a GPU.

    python3 -m tests.benchmarks.ncu_agreement [--json FILE] [--ncu PATH] [--problem SLUG] [--all]

Each kernel is analysed on the host for the GPU's own target and the case; then the candidate runs
once on that case under `ncu`. Registers, shared memory, threads, what limits occupancy, occupancy
itself and spills are compared, one row each: `ours` was worked out without the GPU, `ncu` read on
it. A metric that this ncu does not know is `missing`, and no agreement. Cases whose kernels are
compiled to the same instructions as earlier ones are left out, unless `--all` is given.

`static shared` of ours leaves out what the driver keeps of each block, which is a row of its own.
`spills` compares whether ptxas spilled with whether such instructions were executed; a spill on a
path that this case does not take shows as a difference.

Needs a GPU, Nsight Compute and the right to read its counters, and of Python packages numpy, torch
and triton. It asserts nothing. Reading counters takes no quiet machine.
"""

from __future__ import annotations

import argparse
import csv
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from kernels.catalog import Case, Problem, ZooKernel, load_all, load_problem
from runner.analysis.analyze import AnalysisSpec, Report, analyze
from runner.analysis.targets import SHARED_RESERVED, TARGETS
from runner.console import table
from runner.evaluate.devices import device_info
from runner.evaluate.modules import module_at
from runner.results import DeviceInfo
from runner.spec import SpecError, known_case
from runner.wire import to_json
from tests.benchmarks.figures import write

ROOT = Path(__file__).resolve().parents[2]
DEVICE = "cuda:0"
PLACES = ("/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/ncu")
PROFILE_S = 600.0
LAUNCHES = 8  # at most, of one run of a candidate
SCALES = {"K": 1_000, "M": 1_000_000, "G": 1_000_000_000}  # ncu's Kbyte is 1,000 bytes
OCCUPANCY_POINTS = 0.05  # ncu prints two decimals
Kernel = dict[str, Any]  # a kernel in the document of an analysis
Value = float | bool


@dataclass(frozen=True)
class Profile:
    """One launch as ncu saw it; values in base units, absent where ncu gave no number."""

    kernel: str
    metrics: dict[str, float]


@dataclass(frozen=True)
class Quantity:
    """Something that both sides know. `metrics` are added up; one that is absent spoils the sum."""

    name: str
    ours: Callable[[Kernel], Value]
    metrics: tuple[str, ...]

    def theirs(self, profile: Profile | None) -> Value | None:
        found = [profile.metrics.get(metric) if profile else None for metric in self.metrics]
        known = [value for value in found if value is not None]
        if len(known) < len(found):
            return None
        return sum(known) > 0 if self.yes_or_no else sum(known)

    @property
    def yes_or_no(self) -> bool:
        """Bytes in the program text and instructions executed cannot be equal, but both be none."""
        return self.name in ("spills", "local memory")


@dataclass(frozen=True)
class Comparison:
    """One quantity of one kernel on one case; `ncu` is None where it is missing."""

    case: str
    kernel: str
    quantity: str
    ours: Value
    ncu: Value | None

    @property
    def agrees(self) -> bool | None:
        if self.ncu is None:
            return None
        allowed = OCCUPANCY_POINTS if self.quantity == OCCUPANCY else 0.0
        return abs(self.ours - self.ncu) <= allowed

    @property
    def words(self) -> str:
        return {None: "missing", True: "yes", False: "NO"}[self.agrees]


OCCUPANCY = "occupancy %"
LIMITS = {
    "registers": "registers",
    "shared memory": "shared_mem",
    "warps": "warps",
    "blocks": "blocks",
}


def _limit(resource: str) -> Callable[[Kernel], Value]:
    return lambda kernel: int(kernel["occupancy"]["limits"][resource])


QUANTITIES = (
    Quantity("registers", lambda kernel: kernel["registers"], ("launch__registers_per_thread",)),
    Quantity(
        "static shared",
        lambda kernel: kernel["static_shared_bytes"],
        ("launch__shared_mem_per_block_static",),
    ),
    Quantity(
        "dynamic shared",
        lambda kernel: kernel["dynamic_shared_bytes"],
        ("launch__shared_mem_per_block_dynamic",),
    ),
    Quantity(
        "driver's shared", lambda kernel: SHARED_RESERVED, ("launch__shared_mem_per_block_driver",)
    ),
    Quantity("threads", lambda kernel: kernel["threads"], ("launch__block_size",)),
    *(
        Quantity(f"blocks by {name}", _limit(name), (f"launch__occupancy_limit_{metric}",))
        for name, metric in LIMITS.items()
    ),
    Quantity(
        OCCUPANCY,
        lambda kernel: 100 * kernel["occupancy"]["fraction"],
        ("sm__maximum_warps_per_active_cycle_pct",),
    ),
    Quantity(
        "spills",
        lambda kernel: kernel["spill_store_bytes"] + kernel["spill_load_bytes"] > 0,
        ("sass__inst_executed_register_spilling",),
    ),
    Quantity(
        "local memory",
        lambda kernel: any(each["loads"] + each["stores"] for each in kernel["local"]),
        ("sass__inst_executed_local_loads", "sass__inst_executed_local_stores"),
    ),
)
OF_A_LAUNCH = tuple(
    metric
    for quantity in QUANTITIES
    for metric in quantity.metrics
    if not metric.startswith("sass__")
)
OF_INSTRUCTIONS = tuple(
    metric for quantity in QUANTITIES for metric in quantity.metrics if metric not in OF_A_LAUNCH
)
CONTEXT = ("launch__grid_size", "launch__shared_mem_config_size", "launch__stack_size")


class Unusable(RuntimeError):
    """Ncu gave no profile; the message has its own words and what usually helps."""


def profiles(text: str) -> tuple[Profile, ...]:
    """The launches in what `ncu --csv --page raw` writes, in order; its own messages are skipped.

    Raises ValueError for a table without the names of kernels.
    """
    lines = [line for line in text.splitlines() if line.startswith('"')]
    if not lines:
        return ()
    header, *rows = csv.reader(lines)
    if "Kernel Name" not in header:
        raise ValueError(f"no column 'Kernel Name' among {', '.join(header[:8])} …")
    units = dict.fromkeys(header, "")
    if rows and not rows[0][0]:  # the row below the header has no ID
        units |= dict(zip(header, rows.pop(0), strict=False))
    found = []
    for row in rows:
        cells = dict(zip(header, row, strict=False))
        numbers = {name: _number(cells[name], units[name]) for name in cells if "__" in name}
        known = {name: value for name, value in numbers.items() if value is not None}
        found.append(Profile(cells["Kernel Name"].partition("(")[0], known))
    return tuple(found)


def _number(text: str, unit: str) -> float | None:
    """In base units; None for `n/a` and whatever else is no number."""
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    scaled = re.match(r"([KMG])byte", unit)
    return value * SCALES[scaled[1]] if scaled else value


def compared(case: str, kernels: Iterable[Kernel], seen: Sequence[Profile]) -> list[Comparison]:
    """Every quantity of every kernel; the n-th specialisation of a name with the n-th that ran."""
    rows, taken = [], dict[str, int]()
    for kernel in kernels:
        name = kernel["kernel"]
        ran = _specialisations(each for each in seen if each.kernel == name)
        position = taken[name] = taken.get(name, -1) + 1
        profile = ran[position] if position < len(ran) else None
        rows += [
            Comparison(case, name, each.name, each.ours(kernel), each.theirs(profile))
            for each in QUANTITIES
        ]
    return rows


def _specialisations(seen: Iterable[Profile]) -> list[Profile]:
    """Launches of one name that differ in what a launch cannot choose, the first of each."""
    names = ("launch__registers_per_thread", "launch__shared_mem_per_block_dynamic")
    first: dict[tuple[float | None, ...], Profile] = {}
    for profile in seen:
        first.setdefault(tuple(profile.metrics.get(name) for name in names), profile)
    return list(first.values())


def profiled(ncu: str, kernel: ZooKernel, problem: str, case: str, names: set[str]) -> str:
    """What ncu writes of one run of the candidate. Raises Unusable.

    Counts of executed instructions come first to be given up: not every ncu has them.
    """
    words = ""
    for metrics in ((*OF_A_LAUNCH, *OF_INSTRUCTIONS, *CONTEXT), OF_A_LAUNCH):
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder, "log")
            argv = [*_command(ncu, log, metrics, names), problem, kernel.name, case]
            done = subprocess.run(
                argv, cwd=ROOT, capture_output=True, text=True, timeout=PROFILE_S, check=False
            )
            text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        if profiles(text):
            return text
        words = "\n".join(filter(None, (text, done.stdout, done.stderr))).strip()
    raise Unusable(_explained(words))


def _command(ncu: str, log: Path, metrics: Sequence[str], names: set[str]) -> list[str]:
    pattern = "|".join(re.escape(name) for name in sorted(names))
    return [
        ncu,
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--metrics", ",".join(metrics), "--clock-control", "none"),
        *("--kernel-name-base", "function", "--kernel-name", f"regex:^({pattern})$"),
        *("--launch-count", str(LAUNCHES), "--log-file", str(log)),
        *(sys.executable, "-m", "tests.benchmarks.ncu_agreement", "--launch"),
    ]


def _explained(words: str) -> str:
    remedy = ""
    if "ERR_NVGPUCTRPERM" in words:
        remedy = " Counters are for administrators here: run as root, or let the driver allow it."
    return f"ncu gave no profile.{remedy} Its last words:\n{words[-1500:] or '(none)'}"


def launch(problem: str, name: str, case: str) -> None:
    """Under ncu: one call of the candidate on the case."""
    import torch

    from runner.evaluate.draws import draw, draw_name

    contract, point = load_problem(problem), known_case(load_problem(problem), case)
    (kernel,) = (each for each in contract.kernels("triton") if each.name == name)
    generator = torch.Generator(DEVICE).manual_seed(0)
    inputs = [
        draw(draw_name(point, each), point.shape(each), point.dtype_of(each), generator)
        for each in contract.inputs
    ]
    module_at(kernel.path).run(*(tensor.contiguous() for tensor in inputs))
    torch.cuda.synchronize()


def candidates(problem: str | None) -> Iterator[tuple[Problem, ZooKernel, Case]]:
    """Every Triton kernel of the zoo on every case of a GPU set, the scored ones first."""
    for contract in load_all():
        on_gpu = [case for case in contract.cases if any(s.startswith("gpu") for s in case.sets)]
        for kernel in contract.kernels("triton") if problem in (None, contract.slug) else ():
            for case in sorted(on_gpu, key=lambda case: not case.scored):
                yield contract, kernel, case


def measure(ncu: str, target: str, options: argparse.Namespace) -> list[Comparison]:
    rows: list[Comparison] = []
    done: set[tuple[str, str]] = set()
    for problem, kernel, case in candidates(options.problem):
        spec = AnalysisSpec(problem.slug, kernel.source, target=target, case=case.name)
        report = analyze(spec)
        # A cubin names the folder it was compiled in; the listing does not.
        code = {(each.kernel, each.level("sass").text) for each in report.levels if each.binary}
        if code and code <= done and not options.all:
            continue
        done |= code
        try:
            rows += _held_against(ncu, kernel, problem.slug, case.name, report)
        except Unusable as error:
            if not rows:
                raise  # nor will the others
            print(f"left out: {error}", file=sys.stderr)
    return rows


def _held_against(
    ncu: str, kernel: ZooKernel, problem: str, case: str, report: Report
) -> list[Comparison]:
    """Prints a line while it goes on: each takes some seconds. Raises Unusable."""
    kernels = report.analysis.resources.get("kernels", [])
    names = {each["kernel"] for each in kernels}
    print(f"{problem} {case}: {', '.join(sorted(names)) or report.analysis.reason}", flush=True)
    if not names:
        return []
    seen = profiles(profiled(ncu, kernel, problem, case, names))
    return compared(f"{problem} {case}", kernels, seen)


def printed(rows: Sequence[Comparison]) -> str:
    header = ("case", "kernel", "quantity", "ours", "ncu", "agrees")
    cells = [
        (row.case, row.kernel, row.quantity, _shown(row.ours), _shown(row.ncu), row.words)
        for row in rows
    ]
    agreed = sum(row.agrees is True for row in rows)
    missing = sum(row.agrees is None for row in rows)
    total = f"{agreed} of {len(rows) - missing} agree, {missing} missing"
    return f"{table(header, cells, right=(3, 4))}\n\n{total}"


def _shown(value: Value | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "none"
    return f"{value:,.1f}".removesuffix(".0")


def document(ncu: str, device: DeviceInfo, rows: Sequence[Comparison]) -> dict[str, Any]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": to_json(device),
        "versions": {
            "python": platform.python_version(),
            "torch": _version("torch"),
            "triton": _version("triton"),
            "ncu": _ncu_version(ncu),
        },
        "rows": [{**to_json(row), "agrees": row.agrees} for row in rows],
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def _ncu_version(ncu: str) -> str:
    done = subprocess.run([ncu, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"Version (\S+)", done.stdout)
    return found[1] if found else "unknown"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="write the comparison to this file")
    parser.add_argument("--ncu", help="Nsight Compute's command line, where it is not on the path")
    parser.add_argument("--problem", help="this problem's kernels alone")
    parser.add_argument("--all", action="store_true", help="cases with known machine code too")
    parser.add_argument("--launch", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.launch:
        launch(*options.launch)
        return
    ncu = options.ncu or next(filter(None, map(shutil.which, ("ncu", *PLACES))), None)
    if ncu is None or shutil.which(ncu) is None:
        sys.exit(f"Nsight Compute is not here ({ncu or 'ncu'}): install it, or name it by --ncu.")
    try:
        device = device_info(DEVICE)
    except SpecError as error:
        sys.exit(f"There is no GPU to hold the analysis against: {error}")
    capability = device.details.get("compute capability", "")
    target = f"sm_{capability.replace('.', '')}"
    if target not in TARGETS:
        sys.exit(f"{device.model} is {target}, and the analysis knows {', '.join(TARGETS)}.")
    try:
        rows = measure(ncu, target, options)
    except Unusable as error:
        sys.exit(str(error))
    print(f"\n{device.model}, {target}\n\n{printed(rows)}")
    if options.json:
        write(options.json, document(ncu, device, rows))


if __name__ == "__main__":
    main()
