"""Kills the programs of a machine at random moments of runs, and compares their logs with one that
nobody disturbed.

    python -m tests.benchmarks.durability [--moments 30] [--seed 1] [--evaluations 10]

Real workers, web, Valkey and reconciler; measurements are made up, so that a run has one course. As
many runs are made as the moments need. Prints a table, and ends with status 1 if anything was lost
or doubled.
"""

from __future__ import annotations

import argparse
import logging
import os
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--moments", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evaluations", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wd-bench-") as folder:
        os.environ["WARPDECK_DATA"] = folder
        os.environ["REDIS_URL"] = f"unix://{folder}/nobody.sock"  # hints of ours are lost
        os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
        import django

        django.setup()
        logging.disable(logging.WARNING)  # of hints that find nobody
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        return measure(Path(folder), options.moments, options.seed, options.evaluations)


def measure(folder: Path, moments: int, seed: int, evaluations: int) -> int:
    from runner.spec import Budgets, RunSpec
    from tests.webapp.crew import KINDS, Crew

    spec = RunSpec("softmax", budgets=Budgets(evaluations=evaluations))
    expected, chance, killed, faults = undisturbed(spec), random.Random(seed), 0, 0
    print(f"an undisturbed run: {len(expected)} steps besides lifecycle, budgets and analyses")
    print(
        f"{'run':>3} {'seconds':>8} {'events':>7} {'starts':>7} {'lost':>5} {'doubled':>8}  killed"
    )
    with Crew(folder) as crew:
        number = 0
        while killed < moments:
            number += 1
            order = [chance.choice(KINDS) for _ in range(min(8, moments - killed))]
            row = disturbed(crew, spec, chance.random(), order)
            lost = sum((Counter(expected) - Counter(row["told"])).values())
            doubled = sum((Counter(row["told"]) - Counter(expected)).values())
            wrong = lost or doubled or row["told"] != expected or row["twice"]
            faults += bool(wrong)
            killed += row["killed"]
            print(
                f"{number:>3} {row['seconds']:>8.1f} {row['events']:>7} {row['starts']:>7}"
                f" {lost:>5} {doubled + row['twice']:>8}  {' '.join(order[: row['killed']])}",
                flush=True,
            )
    print(f"{killed} moments, {faults} runs that differ")
    return 1 if faults else 0


def undisturbed(spec: Any) -> list[tuple[Any, ...]]:
    """Driven in this process by hand: its jobs are judged between two looks of the driver."""
    import threading

    from tests.factories import make_user
    from tests.webapp import quick_device
    from tests.webapp.crew import essence
    from tests.webapp.fakes import DeviceThread
    from webapp.runs import driver
    from webapp.runs.models import Run

    run = Run.objects.launch(spec, make_user())

    def judge(wanted: Any, cancel: Any) -> Any:
        return quick_device.judge(wanted, cancel=None, progress=lambda phase: None)

    with DeviceThread(judge):
        driver.drive_run(run.pk, threading.Event(), "a driver", examiner=None)
    return essence(run)


def disturbed(crew: Any, spec: Any, seed: float, order: list[str]) -> dict[str, Any]:
    from tests.factories import make_user
    from tests.webapp.crew import ended, essence, eventually
    from webapp.runs.models import Job, Run

    run, began = Run.objects.launch(spec, make_user()), time.monotonic()
    killed = crew.kill_during(run, seed, tuple(order))
    eventually(lambda: ended(run), "the run is over", 180)
    analysed = [row.log.payload["candidate"] for row in run.events.filter(type="analysis")]
    twice = len(analysed) - len(set(analysed)) + Job.objects.filter(run=run).count()
    return {
        "told": essence(run),
        "killed": killed,
        "seconds": time.monotonic() - began,
        "events": run.last_seq,
        "starts": run.lease_token,
        "twice": twice - run.evaluations,
    }


if __name__ == "__main__":
    sys.exit(main())
