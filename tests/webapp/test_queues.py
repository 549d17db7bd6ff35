"""Hints to workers while the broker is away."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from django.conf import settings

SENDS = """
import django, time
django.setup()
from webapp.runs import queues
began = time.monotonic()
for pk in range(5):
    queues.send_run(pk)
print(time.monotonic() - began)
"""


def test_a_broker_that_is_away_costs_whoever_sends_a_hint_no_time(tmp_path: Path) -> None:
    environment = {**os.environ, "REDIS_URL": f"unix://{tmp_path / 'nobody.sock'}"}

    told = subprocess.run(
        [sys.executable, "-c", SENDS],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert told.returncode == 0, told.stderr
    assert float(told.stdout) < 2.0
    assert told.stderr.count("no hint for runs.drive") == 5
