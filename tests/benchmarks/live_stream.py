"""How long from an event's commit until a viewer has it, with many viewers of one run.

    python -m tests.benchmarks.live_stream [--viewers 100] [--rate 100] [--seconds 10]

A real Valkey, a real uvicorn and a writer in a process of its own; the viewers share this one. The
lag is the viewer's clock on receipt minus the event's `at`, which is stamped before the commit.
Prints a table; asserts nothing but that no event was lost or doubled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

from tests.ports import free_port

WARM_UP_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=100)
    parser.add_argument("--rate", type=float, default=100.0, help="events a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--write", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write is not None:
        write(options.write, options.rate, options.seconds)
        return
    with tempfile.TemporaryDirectory(prefix="wd-bench-") as folder:
        os.environ["WARPDECK_DATA"] = folder
        os.environ["REDIS_URL"] = f"unix://{folder}/valkey.sock"
        measure(Path(folder), options.viewers, options.rate, options.seconds)


def set_up_django() -> None:
    import django

    os.environ["DJANGO_SETTINGS_MODULE"] = "webapp.settings"
    django.setup()


def measure(folder: Path, viewers: int, rate: float, seconds: float) -> None:
    set_up_django()
    from django.core.management import call_command

    from webapp.fleet.valkey import embedded

    call_command("migrate", verbosity=0)
    port = free_port()
    argv = [sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--port", str(port)]
    with (folder / "log").open("wb") as log:
        valkey = subprocess.Popen(embedded(folder).argv, stdout=log, stderr=log)
        web = subprocess.Popen([*argv, "--no-access-log"], stdout=log, stderr=log)
    try:
        cookie, pk = prepare()
        await_port(port)
        before = cpu_s(web.pid)
        lags = asyncio.run(watch(port, cookie, pk, viewers, rate, seconds))
        used = cpu_s(web.pid) - before
    finally:
        for process in (web, valkey):
            process.terminate()
            process.wait()
    print_table(lags, viewers, rate)
    print(
        f"  web  {used / seconds * 100:6.0f} % of a core, one-minute load {os.getloadavg()[0]:.1f}"
    )


def prepare() -> tuple[str, int]:
    """A signed-in session and a run that is under way."""
    from django.conf import settings
    from django.test import Client

    from tests.factories import make_run, make_user

    client = Client()
    client.force_login(make_user())
    name = settings.SESSION_COOKIE_NAME
    return f"{name}={client.cookies[name].value}", make_run("running").pk


def write(pk: int, rate: float, seconds: float) -> None:
    """The driver's part: so many notes a second through the real log."""
    set_up_django()
    from runner.events import NotePayload
    from webapp.runs.log import DatabaseLog
    from webapp.runs.models import Run

    token = Run.objects.take(pk, "benchmark")
    assert token is not None
    log = DatabaseLog(Run.objects.get(pk=pk), token)
    started = time.monotonic()
    for index in range(int(rate * seconds)):
        time.sleep(max(0.0, started + index / rate - time.monotonic()))
        log.emit(NotePayload("benchmark", f"note {index}"))
    time.sleep(0.5)  # a worker lives on too: its last nudge leaves after the commit


async def watch(
    port: int, cookie: str, pk: int, viewers: int, rate: float, seconds: float
) -> list[float]:
    lags: list[float] = []
    last = 1 + int(rate * seconds)
    address = f"ws://127.0.0.1:{port}/ws/runs/{pk}/?after=1"
    readers = [asyncio.create_task(read(address, cookie, last, lags)) for _ in range(viewers)]
    await asyncio.sleep(WARM_UP_S)
    arguments = ["--write", str(pk), "--rate", str(rate), "--seconds", str(seconds)]
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.benchmarks.live_stream", *arguments
    )
    await asyncio.gather(*readers)
    await writer.wait()
    return lags


async def read(address: str, cookie: str, last: int, lags: list[float]) -> None:
    import websockets

    headers = {"Cookie": cookie, "Origin": "http://127.0.0.1"}
    seqs: list[int] = []
    async with websockets.connect(address, additional_headers=headers, max_size=None) as client:
        async for message in client:
            now = time.time()
            frame = json.loads(message)
            for item in frame.get("items", []):
                seqs.append(item["seq"])
                lags.append(now - datetime.fromisoformat(item["at"]).timestamp())
            if seqs and seqs[-1] >= last:
                break
    assert seqs == list(range(2, last + 1)), "an event was lost or doubled"


def print_table(lags: list[float], viewers: int, rate: float) -> None:
    lags.sort()
    print(f"{viewers} viewers, {rate:g} events/s, {len(lags)} deliveries, none lost or doubled")
    for name, share in (("p50", 0.50), ("p90", 0.90), ("p99", 0.99), ("max", 1.0)):
        print(f"  {name}  {lags[min(len(lags) - 1, int(share * len(lags)))] * 1e3:8.1f} ms")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def await_port(port: int) -> None:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the web did not answer")


if __name__ == "__main__":
    main()
