"""Which programs make up Warpdeck on one machine: command lines and environments.

Keys of model providers reach the worker that drives agents, and no other program.
"""

from __future__ import annotations

import sys

from runner.keys import without_keys
from webapp.celery import AGENTS_QUEUE, device_queue
from webapp.fleet.supervisor import Program
from webapp.fleet.valkey import Valkey

AGENTS_AT_ONCE = 8  # agents mostly wait: for an evaluation, a model, or somebody outside
WEB, AGENTS, RECONCILER = "web", "agents", "reconciler"


def valkey(server: Valkey, environment: dict[str, str]) -> Program:
    return Program("valkey", server.argv, without_keys(environment), last=True)


def web(host: str, port: int, environment: dict[str, str]) -> Program:
    # No access log: it would hold the tokens of sign-in links.
    argv = [
        *(sys.executable, "-m", "uvicorn", "webapp.asgi:application", "--no-access-log"),
        *("--host", host, "--port", str(port), "--lifespan", "off"),
        *("--timeout-graceful-shutdown", "2", "--ws-max-size", "65536"),
    ]
    return Program(WEB, argv, without_keys(environment))


def agents(environment: dict[str, str]) -> Program:
    return _worker(AGENTS, AGENTS_QUEUE, AGENTS_AT_ONCE, environment)


def device(name: str, environment: dict[str, str]) -> Program:
    """One measurement at a time: a device's worker does one thing."""
    name, queue = f"device-{name.replace(':', '-')}", device_queue(name)
    return _worker(name, queue, 1, without_keys(environment))


def reconciler(environment: dict[str, str]) -> Program:
    argv = [sys.executable, "manage.py", "reconcile"]
    return Program(RECONCILER, argv, without_keys(environment))


def _worker(name: str, queue: str, at_once: int, environment: dict[str, str]) -> Program:
    # Threads, not processes: a worker that is killed leaves no half-alive child behind.
    argv = [
        *(sys.executable, "-m", "celery", "-A", "webapp", "worker", "--loglevel", "INFO"),
        *("--queues", queue, "--hostname", f"{name}@%h"),
        *("--pool", "threads", "--concurrency", str(at_once)),
        *("--without-gossip", "--without-mingle", "--without-heartbeat"),
    ]
    return Program(name, argv, environment)
