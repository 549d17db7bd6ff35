"""How many evaluations a minute a device yields when its queue is full, and why it idles.

    python -m tests.benchmarks.throughput [--device host|cuda:0] [--jobs 60] [--workers 1 2]
        [--problem vector_add] [--language cpp|triton] [--case-set SET] [--pairs 30] [--json FILE]

The real path: Job rows, hints through a real Valkey, Celery workers as `manage.py up` starts them,
each with zygotes of its own; several workers of a device meet at its lease. All jobs are queued at
once. Nobody drives runs and nobody looks at pages: this is the device side alone.

Nothing of the service is changed to be measured. Ten milliseconds apart it is looked up who holds
the device's lease (`/proc/locks`) and in which phase the claimed jobs are (their rows):

    busy       share of the wall time in which one of our workers held the lease
    wait       from the queueing of a job until a worker claimed it
    idle       where the other time went, by the phases of the jobs that were claimed meanwhile
    overlap    share of the compiling done while the lease was held, for another job then
    half-width of the 95% intervals of the speedups: compiling beside a measurement of the host
               takes cores from it

It asserts nothing. Only a quiet machine gives figures.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernels.catalog import load_problem
from runner.evaluate.devices import device_info
from runner.evaluate.lease import path_of
from runner.spec import EvaluationSpec, device_kind
from tests.benchmarks.figures import both, circumstances, quantile, write

if TYPE_CHECKING:
    from webapp.fleet.supervisor import Program
    from webapp.runs.models import Job, Run

SAMPLE_S = 0.01
PATIENCE_S = 300.0
WARM_UPS = 2  # jobs for each worker: it starts its zygotes with the first
QUICK = {"host": "host-quick", "cuda": "gpu-quick"}
LANGUAGE = {"host": "cpp", "cuda": "triton"}
UNCLAIMED = "no job claimed"
STARTING = "claimed, not started"
FOREIGN = "the lease is held by a process that is none of ours"


@dataclass
class Watch:
    """What was seen: counts of samples, and the moment each job was first seen claimed."""

    samples: int = 0
    busy: Counter[str] = field(default_factory=Counter)  # by what the jobs did
    idle: Counter[str] = field(default_factory=Counter)
    compiling: int = 0
    compiling_beside: int = 0  # while the lease was held
    claimed_s: dict[int, float] = field(default_factory=dict)

    def note(self, now_s: float, held: str, phases: dict[int, str]) -> None:
        words = " + ".join(sorted(phases.values())) or UNCLAIMED
        self.samples += 1
        if held == "ours":
            self.busy[words] += 1
        else:
            self.idle[FOREIGN if held else words] += 1
        if "compiling" in phases.values():
            self.compiling += 1
            self.compiling_beside += held == "ours"
        for pk in phases:
            self.claimed_s.setdefault(pk, now_s)

    def share(self, counts: Counter[str]) -> dict[str, float]:
        return {words: count / self.samples for words, count in counts.most_common()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="host")
    parser.add_argument("--jobs", type=int, default=60)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--problem", default="vector_add")
    parser.add_argument("--language", help="default: cpp on the host, triton on a GPU")
    parser.add_argument("--case-set", help="default: the quick one of the device")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wd-bench-") as folder:
        os.environ["WARPDECK_DATA"] = folder
        for name in ("DATABASE_URL", "REDIS_URL"):
            os.environ.pop(name, None)
        os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
        document = measure(Path(folder), options)
    if options.json:
        write(options.json, document)
    return 0


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    import django

    django.setup()
    from django.core.management import call_command

    from tests.factories import make_run
    from webapp.fleet.valkey import embedded

    call_command("migrate", verbosity=0)
    spec, rows = spec_of(options), []
    setting: dict[str, Any] = {}
    with running(folder, "valkey", embedded(folder).argv):
        until(lambda: embedded(folder).answers)
        for workers in options.workers:
            run = make_run("queued", problem=options.problem, device=options.device)
            with device_workers(folder, options.device, workers) as pids:
                finish(queue(run, spec, WARM_UPS * workers))
                jobs = queue(run, spec, options.jobs)
                queued_s = time.monotonic()
                watch = watched(jobs, options.device, pids)
                wall_s = time.monotonic() - queued_s
            if not setting:
                setting = head(jobs[0], spec, options)
            rows.append(row(workers, jobs, watch, queued_s, wall_s))
            print_row(rows[-1])
    return {**setting, "rows": rows}


def spec_of(options: argparse.Namespace) -> EvaluationSpec:
    """The reviewed kernel of the problem with its default constants."""
    kind = device_kind(options.device)
    language = options.language or LANGUAGE[kind]
    source = load_problem(options.problem).kernels(language)[0].source
    case_set = options.case_set or QUICK[kind]
    return EvaluationSpec(
        options.problem, source, language, options.device, case_set, options.pairs
    )


@contextlib.contextmanager
def running(
    folder: Path, name: str, argv: list[str], environment: dict[str, str] | None = None
) -> Iterator[int]:
    """A program for the time of the block; yields its process id."""
    from django.conf import settings

    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=environment, cwd=settings.BASE_DIR, stdout=log, stderr=log
        )
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def device_workers(folder: Path, device: str, count: int) -> Iterator[set[int]]:
    """So many workers of one device, ready, its roofs measured; yields their process ids."""
    from webapp.fleet import programs
    from webapp.fleet.models import Device, Worker

    with contextlib.ExitStack() as stack:
        pids = set()
        for number in range(count):
            program = named(programs.device(device, dict(os.environ)), f"device-{number}@%h")
            name = f"{count}-{number}"
            pids.add(stack.enter_context(running(folder, name, program.argv, program.environment)))
        until(lambda: Worker.objects.live().filter(pid__in=pids).count() == count)
        until(lambda: Device.objects.exclude(ceilings_text="").filter(state="idle").exists())
        yield pids


def named(program: Program, hostname: str) -> Program:
    """The program under another node name: two workers of one machine need two."""
    argv = list(program.argv)
    argv[argv.index("--hostname") + 1] = hostname
    return replace(program, argv=argv)


def queue(run: Run, spec: EvaluationSpec, count: int) -> list[Job]:
    """So many jobs at once, each with its hint, as a driver asks for one."""
    from django.utils import timezone

    from runner.wire import canonical, to_json
    from webapp.runs import queues
    from webapp.runs.models import Job

    first, text = run.jobs.count() + 1, canonical(to_json(spec))
    common = {"run": run, "device": spec.device, "spec_text": text, "hints_sent": 1}
    numbers = range(first, first + count)
    jobs = [Job(number=number, enqueued_at=timezone.now(), **common) for number in numbers]
    Job.objects.bulk_create(jobs)
    for job in jobs:
        queues.send_job(job.pk, job.device)
    return jobs


def finish(jobs: list[Job]) -> None:
    until(lambda: not open_of(jobs))


def open_of(jobs: list[Job]) -> dict[int, str]:
    """pk → phase of the jobs that are claimed and without a result, "" of those that wait."""
    from webapp.runs.models import Job

    found = Job.objects.open().filter(pk__in=[job.pk for job in jobs])
    rows = found.values_list("pk", "attempts", "phase")
    return {
        pk: (phase.split(" ")[0] or STARTING) if attempts else "" for pk, attempts, phase in rows
    }


def watched(jobs: list[Job], device: str, pids: set[int]) -> Watch:
    """Look until all jobs are done."""
    watch, lock = Watch(), path_of(device_info(device).uuid)
    deadline = time.monotonic() + PATIENCE_S
    while waiting := open_of(jobs):
        now = time.monotonic()
        if now > deadline:
            raise SystemExit(f"{len(waiting)} jobs are not done after {PATIENCE_S:g} s")
        claimed = {pk: phase for pk, phase in waiting.items() if phase}
        watch.note(now, holder(lock, pids), claimed)
        time.sleep(max(0.0, now + SAMPLE_S - time.monotonic()))
    return watch


def holder(lock: Path, pids: set[int]) -> str:
    """Who holds a file's lock, by the kernel's own table: `ours`, `others`, or nobody."""
    inode = str(lock.stat().st_ino)
    for line in Path("/proc/locks").read_text().splitlines():
        words = line.split()
        if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode:
            return "ours" if int(words[4]) in pids else "others"
    return ""


def row(
    workers: int, jobs: list[Job], watch: Watch, queued_s: float, wall_s: float
) -> dict[str, Any]:
    for job in jobs:
        job.refresh_from_db()
    results = [job.result for job in jobs]
    waits = [claimed - queued_s for claimed in watch.claimed_s.values()]
    intervals = [found.ci95 for found in results if found and found.ci95]
    return {
        "workers": workers,
        "jobs": len(jobs),
        "wall_s": wall_s,
        "jobs_per_minute": 60 * len(jobs) / wall_s,
        "busy_share": watch.busy.total() / watch.samples,
        "wait_p50_s": quantile(waits, 0.5),
        "wait_p95_s": quantile(waits, 0.95),
        "half_widths": [(high - low) / 2 for low, high in intervals],
        "evaluation_s": [found.wall_s for found in results if found],
        "busy": watch.share(watch.busy),
        "idle": watch.share(watch.idle),
        "compiling_share": watch.compiling / watch.samples,
        "compiling_beside_a_measurement": watch.compiling_beside / max(1, watch.compiling),
        "verdicts": dict(Counter(found.verdict.value if found else "none" for found in results)),
    }


def head(job: Job, spec: EvaluationSpec, options: argparse.Namespace) -> dict[str, Any]:
    job.refresh_from_db()
    if job.result is None:
        raise SystemExit(f"the device's worker refused the job: {job.refusal_text}")
    setting = circumstances(job.result)
    asked = {"problem": spec.problem, "case_set": spec.case_set, "language": spec.language}
    print(f"{setting['device']['model']}; {' '.join(asked.values())}, {spec.pairs} pairs;", end=" ")
    print(f"{options.jobs} jobs at once; load average {setting['load_average_1min']:.2f}")
    return {**setting, **asked, "pairs": spec.pairs}


def print_row(found: dict[str, Any]) -> None:
    evaluation = both([1e3 * wall for wall in found["evaluation_s"]])
    print(f"\n{found['workers']} workers: {found['jobs_per_minute']:.0f} jobs a minute;", end=" ")
    print(f"device busy {found['busy_share']:.1%} of {found['wall_s']:.1f} s;", end=" ")
    print(f"wait p50 {found['wait_p50_s']:.1f} s, p95 {found['wait_p95_s']:.1f} s;", end=" ")
    print(f"evaluation {evaluation} ms; {found['verdicts']}")
    print(f"  compiling {found['compiling_share']:.1%} of the time,", end=" ")
    print(f"{found['compiling_beside_a_measurement']:.0%} of it beside a measurement;", end=" ")
    widths = found["half_widths"]
    print(f"half-width p50 {quantile(widths, 0.5):.1%}" if widths else "nothing was timed")
    for title in ("busy", "idle"):
        for words, share in found[title].items():
            if share >= 0.005:
                print(f"  {title}  {share:>6.1%}  {words}")
    sys.stdout.flush()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("it did not come true; only a worker that runs finishes jobs")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
