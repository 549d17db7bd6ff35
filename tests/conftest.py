"""What every test stands on: a data folder of its own, and a real Valkey when asked for one.

The environment is set before Django reads its settings, so no test can touch a person's data.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # `pytest` finds the packages as `python -m pytest` does

# Short, because a unix socket's path must fit in 107 bytes.
SCRATCH = Path(tempfile.mkdtemp(prefix="wd-test-"))
atexit.register(shutil.rmtree, SCRATCH, ignore_errors=True)

os.environ["WARPDECK_DATA"] = str(SCRATCH / "data")
os.environ["REDIS_URL"] = f"unix://{SCRATCH / 'valkey.sock'}"
os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
for name in ("DATABASE_URL", "WARPDECK_HOSTS", "WARPDECK_SECRET_KEY", "WARPDECK_LEASE_S"):
    os.environ.pop(name, None)
django.setup()

# Files whose tests need a measurement to succeed, or look at the whole machine. A second process
# beside them would change what they see; all others run two at a time.
ALONE = (
    "tests/e2e/*",
    "tests/exploits/*",
    "tests/analysis/test_leftovers.py",
    "tests/runner/test_ceilings.py",
    "tests/runner/test_cli.py",
    "tests/runner/test_descriptors.py",
    "tests/runner/test_evaluate_*.py",
    "tests/runner/test_keeper.py",
    "tests/runner/test_mcp_stdio.py",
    "tests/runner/test_messages.py",
    "tests/runner/test_neighbours.py",
    "tests/runner/test_soak.py",
    "tests/runner/test_tools_measuring.py",
    "tests/webapp/test_api_workers.py",
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes() -> None:
    """Test processes read the settings only once they have a data folder of their own."""
    os.environ.pop("DJANGO_SETTINGS_MODULE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.relative_to(ROOT).match(pattern) for pattern in ALONE):
            item.add_marker(pytest.mark.alone)


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    """A real Valkey for this session; yields the URL that settings.REDIS_URL holds too."""
    from webapp.fleet.valkey import Valkey, find_binary

    socket = SCRATCH / "valkey.sock"
    process = subprocess.Popen(
        Valkey(find_binary(), socket, SCRATCH).argv,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 10
    while not socket.exists():
        assert process.poll() is None, "valkey-server ended at once"
        assert time.monotonic() < deadline, "valkey-server made no socket"
        time.sleep(0.01)
    yield os.environ["REDIS_URL"]
    process.terminate()
    process.wait(10)
