"""`python -m runner mcp`: a real client, real measurements, and stdout for the protocol alone."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters

from runner import tools
from runner.archive import read_archive
from runner.events import EventType, RunStatus
from runner.partial import Partial
from runner.state import RunState

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
#include <cstdint>
extern "C" void vector_add_fp32(const float *a, const float *b, float *c, std::int64_t N) {
    for (std::int64_t i = 0; i < N; ++i) c[i] = a[i] + b[i];
}
"""
WRITE = {"source": SOURCE, "idea": "A plain loop."}
PATIENCE_S = 60.0


def arguments(archive: Path, *more: str) -> list[str]:
    quick = ("--device", "host", "--case-set", "host-quick")
    return ["-m", "runner", "mcp", "vector_add", *quick, *more, "-o", str(archive)]


def server(archive: Path, *more: str) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable, args=arguments(archive, *more), cwd=str(ROOT)
    )


def outcome(archive: Path) -> RunState:
    with read_archive(archive) as opened:
        return opened.state


def pid_of(archive: Path) -> int:
    """The server that the client of a test started for this archive."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if f"-o\0{archive}\0".encode() in entry.read_bytes():
                return int(entry.parent.name)
    raise AssertionError("no server runs")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def test_an_outside_agent_optimises_a_problem_to_the_end(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"

    async def optimise() -> Any:
        async with Client(server(archive), mode="legacy") as client:
            listed = await client.list_tools()
            assert [tool.name for tool in listed.tools] == list(tools.names())
            await client.call_tool("write_candidate", WRITE)
            prompt = await client.get_prompt("optimise")
            assert "# The contract" in prompt.messages[0].content.text
            measured = await client.call_tool("benchmark", {"candidate": 1})
            assert "c1: passed" in measured.content[0].text
            refused = await client.call_tool("benchmark", {"candidate": 7})
            assert refused.structured_content["error"]["field"] == "candidate"
            ended = await client.call_tool("finish", {"summary": "One loop."})
            until(archive.exists)
            return ended

    assert not asyncio.run(optimise()).is_error
    state = outcome(archive)
    assert (state.status, state.best) == (RunStatus.finished, 1)
    assert not Partial(archive).exists


def test_a_client_that_hangs_up_stops_the_run(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"

    async def leave() -> None:
        async with Client(server(archive)) as client:
            await client.call_tool("write_candidate", WRITE)

    asyncio.run(leave())
    until(archive.exists)
    state = outcome(archive)
    assert (state.status, len(state.candidates)) == (RunStatus.stopped, 1)
    assert state.reason == "stopped by the agent's client, which hung up"


def test_a_budget_that_ends_answers_what_is_asked_after_it(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"

    async def exhaust() -> Any:
        async with Client(server(archive, "--wall-clock", "2")) as client:
            while not (answer := await client.call_tool("frontier", {})).is_error:
                await asyncio.sleep(0.05)
            return answer

    answer = asyncio.run(exhaust())
    assert answer.is_error
    assert "wall clock" in answer.content[0].text


def test_nothing_but_the_protocol_is_written_to_standard_output(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"
    hello = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "a client", "version": "1"},
        },
    }
    done = subprocess.run(
        [sys.executable, *arguments(archive)],
        cwd=ROOT,
        input=f"no json\n{json.dumps(hello)}\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    answers = [message for message in messages if message.get("id") == 1]
    assert answers[0]["result"]["serverInfo"]["name"] == "warpdeck"
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert f"archive {archive}" in done.stderr


def test_what_cannot_be_met_is_refused_before_a_client_waits(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *arguments(tmp_path / "no" / "a.zip")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be written" in done.stderr


def test_a_killed_run_goes_on_with_what_was_asked(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"

    async def ask(*calls: tuple[str, dict[str, Any]], kill: bool) -> None:
        more = () if kill else ("--resume",)
        async with Client(server(archive, *more)) as client:
            for name, given in calls:
                answer = await client.call_tool(name, given)
                assert not answer.is_error, answer.content
            if kill:
                os.kill(pid_of(archive), signal.SIGKILL)

    asyncio.run(ask(("write_candidate", WRITE), ("frontier", {}), kill=True))
    assert Partial(archive).state().status is RunStatus.running
    asyncio.run(ask(("frontier", {}), ("read_candidate", {"candidate": 1}), kill=False))

    until(archive.exists)
    with read_archive(archive) as opened:
        events = list(opened.events)
        called = [e.payload["tool"] for e in events if e.type is EventType.tool_call]
    assert called == ["write_candidate", "frontier", "frontier", "read_candidate"]


def test_a_client_that_hangs_up_during_a_measurement_gives_it_up(tmp_path: Path) -> None:
    archive = tmp_path / "a.warpdeck.zip"

    async def leave() -> None:
        async with Client(server(archive)) as client:
            await client.call_tool("write_candidate", WRITE)
            waiting = asyncio.create_task(client.call_tool("benchmark", {"candidate": 1}))
            await asyncio.to_thread(until, lambda: "benchmark" in called(archive))
            waiting.cancel()

    asyncio.run(leave())
    until(archive.exists)
    state = outcome(archive)
    assert (state.status, state.evaluations) == (RunStatus.stopped, {})


def called(archive: Path) -> list[str]:
    """The tools that were called so far in a run under way."""
    events = Partial(archive).folder / "events.jsonl"
    lines = [line for line in events.read_text().splitlines() if '"type":"tool_call"' in line]
    return [json.loads(line)["payload"]["tool"] for line in lines]
