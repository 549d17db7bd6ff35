"""What must hold before anything is started, each with what to do when it does not.

A refusal stops `up`; a warning says what will not work. Nothing is repaired here.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import IO

import redis

from runner import agents

LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Refused(Exception):
    """`up` cannot start; the message says what to do."""


def check_address(host: str, port: int) -> None:
    if host not in LOOPBACK and not os.environ.get("WARPDECK_HOSTS"):
        raise Refused(
            f"--host {host} opens Warpdeck to the network. Set WARPDECK_HOSTS to the names it "
            "answers to, comma-separated, then start again."
        )
    if not 0 < port < 65536:
        raise Refused(f"--port {port} is no port. Give a number in 1–65535.")
    try:
        with socket.create_server((host, port), family=_family(host)):
            pass
    except OSError as error:
        raise Refused(
            f"port {port} on {host} cannot be used ({error.strerror}). "
            f"Choose another: python manage.py up --port {port + 1 if port < 65535 else 8000}"
        ) from error


def check_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # it holds sessions and keys
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Refused(
            f"the data folder {folder} is not writable ({error.strerror}). "
            "Set WARPDECK_DATA to a folder that you can write to."
        ) from error


def lock_folder(folder: Path) -> IO[str]:
    """Keep the file open for as long as the folder is ours; the kernel frees it when we die."""
    file = (folder / "up.lock").open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        holder = file.read().strip() or "unknown"
        file.close()
        raise Refused(
            f"Warpdeck already runs on the data folder {folder} (process {holder}). "
            "Use that one, stop it, or set WARPDECK_DATA to another folder."
        ) from None
    file.truncate(0)
    file.write(f"{os.getpid()}\n")
    file.flush()
    return file


def check_broker(url: str) -> None:
    """A server of somebody else's must answer; the embedded one is ours to start."""
    try:
        redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3).ping()
    except (redis.RedisError, ValueError) as error:
        raise Refused(
            f"REDIS_URL: no Redis or Valkey answers there ({type(error).__name__}). Start it, "
            "correct the address, or unset REDIS_URL to use the embedded one."
        ) from error


def device_warnings() -> list[str]:
    """What this machine lacks for evaluations; the web works without."""
    warnings = []
    if not can_evaluate():
        warnings.append(
            "torch is not installed: no device is served here, so runs will wait for a worker "
            "elsewhere. Install it: pip install '.[device]'"
        )
    if shutil.which("g++") is None:
        warnings.append(
            "g++ is missing: C++ kernels, the default on the host, will not compile. "
            "Install it: apt-get install g++"
        )
    return warnings


def agent_warnings() -> list[str]:
    """Agents that no worker started here can run; runs of theirs wait for a worker elsewhere."""
    lacking = {name: agents.lacking(name) for name in agents.names()}
    return [
        f"{why}: runs of the {name} agent will wait for a worker elsewhere. Put it right, then "
        "start again"
        for name, why in lacking.items()
        if why
    ]


def can_evaluate() -> bool:
    return importlib.util.find_spec("torch") is not None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
