"""Everything about evaluation and analysis that only a GPU can show, in one command on a bare host.

    python3 -m tests.benchmarks.gpu_acceptance FOLDER [--device cuda:0] [--only STEP …]

Needs Python, numpy, torch, triton and pytest, and bubblewrap for the sandbox to be what it is
elsewhere. Each step is a program of its own with its own deadline: what it prints goes to
`FOLDER/<step>.log`, what it measured to `FOLDER/<step>.json`, written by the step itself. A table
at the end says how each ended; `FOLDER/summary.json` has the same. Exit status 1 if any failed, 2
where there is no such device.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.evaluate.devices import available_devices
from tests.benchmarks.figures import write

CASES = "256Mi-fp32 4096x4096x4096-bf16 8192x16384-bf16"
BATCH = "--device DEVICE --json JSON"
PYTEST = "pytest -q -p no:cacheprovider"


@dataclass(frozen=True)
class Step:
    """A module and its arguments; DEVICE and JSON in it stand for what this run says."""

    name: str
    program: str
    deadline_s: float


STEPS = (
    Step(
        "a_a_ratio",
        f"tests.benchmarks.a_a_ratio {BATCH} --case-set gpu --cases {CASES}"
        " --problems vector_add matmul softmax",
        300,
    ),
    Step(
        "cuda_tests",
        f"{PYTEST} --confcutdir=tests/runner tests/runner/test_evaluate_cuda.py",
        180,
    ),
    Step(
        "evaluation_overhead",
        f"tests.benchmarks.evaluation_overhead {BATCH} --evaluations 20 --clients 1 --pairs 10",
        120,
    ),
    Step("exploits", f"{PYTEST} --confcutdir=tests/exploits tests/exploits/test_exploits.py", 420),
    Step("soak", f"tests.benchmarks.soak {BATCH}", 420),
    Step("ncu_agreement", "tests.benchmarks.ncu_agreement --json JSON", 300),
)


@dataclass(frozen=True)
class Ended:
    """How a step ended; `status` None is the deadline."""

    name: str
    status: int | None
    wall_s: float
    last_line: str

    @property
    def words(self) -> str:
        if self.status is None:
            return "deadline passed"
        return "ok" if self.status == 0 else f"failed with {self.status}"


def main() -> int:
    options = _options()
    if options.device not in available_devices():
        print(f"device: there is no {options.device} here.", file=sys.stderr)
        return 2
    options.folder.mkdir(parents=True, exist_ok=True)
    wanted = [step for step in STEPS if not options.only or step.name in options.only]
    ended = [_run(step, options.device, options.folder) for step in wanted]
    write(options.folder / "summary.json", {"steps": [asdict(each) for each in ended]})
    for each in ended:
        print(f"{each.name:<20} {each.words:<16} {each.wall_s:6.0f} s  {each.last_line}")
    return 1 if any(each.status != 0 for each in ended) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--only", nargs="+", choices=[step.name for step in STEPS])
    return parser.parse_args()


def _run(step: Step, device: str, folder: Path) -> Ended:
    places = {"DEVICE": device, "JSON": str(folder / f"{step.name}.json")}
    arguments = [places.get(each, each) for each in step.program.split()]
    command = [sys.executable, "-u", "-m", *arguments]
    log = folder / f"{step.name}.log"
    started = time.monotonic()
    print(f"{step.name} …", flush=True)
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command, stdout=output, stderr=subprocess.STDOUT, timeout=step.deadline_s
            )
            status: int | None = done.returncode
        except subprocess.TimeoutExpired:
            status = None
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return Ended(step.name, status, time.monotonic() - started, lines[-1] if lines else "")


if __name__ == "__main__":
    sys.exit(main())
