"""Outside agents over the wire: a real server, a real client of the protocol, a real driver."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from django.utils import timezone
from mcp import Client
from mcp.types import CallToolResult

from runner import tools
from runner.events import ControlAction, RunPayload, RunStatus
from runner.results import Evaluation
from runner.spec import EvaluationSpec
from tests.factories import make_evaluation, make_event
from tests.webapp.fakes import DeviceThread
from tests.webapp.outside import (
    SOURCE,
    DriverThread,
    Site,
    launch,
    text_of,
    token_of,
    types_of,
    until,
)
from webapp.api import models
from webapp.api.models import Token, ToolRequest
from webapp.runs.models import Run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]

WRITE = {"source": SOURCE, "idea": "A plain loop, which the compiler vectorises."}
DISCOVER = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
HEADERS = {"Accept": "application/json, text/event-stream"}


class SlowJudge:
    """Lets a candidate pass once the test says so."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.asked = threading.Event()

    def __call__(self, spec: EvaluationSpec, cancel: threading.Event) -> Evaluation:
        self.asked.set()
        assert self.go.wait(30), "nobody let the judge go on"
        return make_evaluation("passed", 1.5, source=spec.source)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        yield running


@pytest.fixture
def device() -> Iterator[DeviceThread]:
    """Its judge lets everything pass."""
    with DeviceThread() as thread:
        yield thread


@pytest.fixture
def run(device: DeviceThread) -> Iterator[Run]:
    """A run that is driven."""
    launched = launch()
    with DriverThread(launched):
        yield launched


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_an_outside_agent_optimises_a_problem_to_the_end(site: Site, run: Run, mode: str) -> None:
    async def optimise(client: Client) -> CallToolResult:
        written = await client.call_tool("write_candidate", WRITE)
        assert not written.is_error, text_of(written)
        measured = await client.call_tool("benchmark", {"candidate": 1})
        assert not measured.is_error, text_of(measured)
        return await client.call_tool("finish", {"summary": "One loop."})

    ended = site.talk(run, token_of(run), optimise, mode=mode)

    assert "Measured: best c1: 1.50×" in text_of(ended)
    until(lambda: Run.objects.get(pk=run.pk).state.ended)
    run.refresh_from_db()
    assert run.status == "finished", run.reason
    assert types_of(run).count("tool_call") == types_of(run).count("tool_result") == 3


def test_the_tools_are_listed_word_for_word(site: Site, run: Run) -> None:
    listed = site.talk(run, token_of(run), lambda client: client.list_tools())

    assert [tool.name for tool in listed.tools] == list(tools.names())
    for tool in listed.tools:
        ours = tools.get(tool.name)
        assert (tool.description, tool.input_schema) == (ours.description, ours.schema)


def test_the_task_is_told_as_instructions_and_as_a_prompt(site: Site, run: Run) -> None:
    async def read(client: Client) -> str:
        assert client.instructions is not None
        assert client.instructions.startswith("Your objective: a kernel for **Sum of two vectors**")
        assert "# The contract: Sum of two vectors" in client.instructions
        prompt = await client.get_prompt("optimise")
        return prompt.messages[0].content.text

    until(lambda: "message" in types_of(run))
    prompt = site.talk(run, token_of(run), read)
    assert "# The contract: Sum of two vectors" in prompt
    assert "Budget: 0 of 4 evaluations used" in prompt


def test_what_a_tool_refuses_is_an_error_with_its_remedy(site: Site, run: Run) -> None:
    refused = site.talk(
        run, token_of(run), lambda client: client.call_tool("benchmark", {"candidate": 9})
    )
    assert refused.is_error
    assert refused.structured_content["error"]["field"] == "candidate"
    assert refused.structured_content["error"]["remedy"]


def test_calls_made_at_once_are_all_answered(site: Site, run: Run) -> None:
    names = ("read_problem", "list_zoo", "frontier", "list_notes", "nonsense")

    async def ask(client: Client) -> list[CallToolResult]:
        return await asyncio.gather(*(client.call_tool(name, {}) for name in names))

    answers = site.talk(run, token_of(run), ask)

    assert [answer.is_error for answer in answers] == [False, False, False, False, True]
    numbers = list(ToolRequest.objects.filter(run=run).values_list("number", flat=True))
    assert numbers == [1, 2, 3, 4, 5]
    assert types_of(run).count("tool_result") == 5


def test_a_note_of_a_person_comes_with_the_next_answer_and_not_again(site: Site, run: Run) -> None:
    async def ask(client: Client) -> list[CallToolResult]:
        return [await client.call_tool("frontier", {}) for _ in range(2)]

    until(lambda: "message" in types_of(run))
    run.ask(ControlAction.steer, "grace", "Mind the tail.")
    first, second = site.talk(run, token_of(run), ask)

    assert "grace" in first.content[1].text
    assert first.content[1].text.endswith("Mind the tail.")
    assert len(second.content) == 1


def test_whoever_waits_is_told_what_goes_on(site: Site) -> None:
    judge, heard = SlowJudge(), []

    async def ask(client: Client) -> None:
        async def hear(progress: float, total: float | None, message: str | None) -> None:
            heard.append(message)
            judge.go.set()

        await client.call_tool("write_candidate", WRITE)
        await client.call_tool("benchmark", {"candidate": 1}, progress_callback=hear)

    with DeviceThread(judge):
        run = launch()
        with DriverThread(run):
            site.talk(run, token_of(run), ask)

    assert heard[0] == "c1 judging"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_a_call_is_not_lost_with_its_connection(site: Site, mode: str) -> None:
    judge = SlowJudge()

    async def hang_up(client: Client) -> None:
        await client.call_tool("write_candidate", WRITE)
        waiting = asyncio.create_task(client.call_tool("benchmark", {"candidate": 1}))
        await asyncio.to_thread(judge.asked.wait, 30)
        waiting.cancel()

    with DeviceThread(judge) as device:
        run = launch()
        token = token_of(run)
        with DriverThread(run):
            site.talk(run, token, hang_up, mode=mode)
            judge.go.set()
            until(lambda: types_of(run).count("tool_result") == 2)
            answer = site.talk(
                run, token, lambda client: client.call_tool("benchmark", {"candidate": 1})
            )

    assert not answer.is_error
    assert "1.50×" in text_of(answer)
    assert len(device.judged) == 1
    assert ToolRequest.objects.filter(run=run).count() == 2


def test_a_call_is_answered_though_its_driver_goes_away_in_between(site: Site) -> None:
    judge, answers = SlowJudge(), []

    async def ask(client: Client) -> None:
        await client.call_tool("write_candidate", WRITE)
        answers.append(await client.call_tool("benchmark", {"candidate": 1}))

    with DeviceThread(judge) as device:
        run = launch()
        asking = threading.Thread(target=site.talk, args=(run, token_of(run), ask))
        with DriverThread(run):
            asking.start()
            assert judge.asked.wait(30)
        assert Run.objects.get(pk=run.pk).status == "queued"
        with DriverThread(run):
            judge.go.set()
            asking.join(30)

    assert "1.50×" in text_of(answers[0])
    assert len(device.judged) == 1
    types = types_of(run)
    assert (types.count("candidate"), types.count("evaluation")) == (1, 1)
    assert types.count("tool_call") == types.count("tool_result") == 2


def test_a_run_that_is_not_driven_yet_is_waited_for(site: Site, device: DeviceThread) -> None:
    run, answers = launch(), []

    async def ask(client: Client) -> None:
        answers.append(await client.call_tool("frontier", {}))

    asking = threading.Thread(target=site.talk, args=(run, token_of(run), ask))
    asking.start()
    until(lambda: Token.objects.get(run=run).used_at)
    with DriverThread(run):
        asking.join(30)

    assert not answers[0].is_error


def test_a_paused_run_is_worked_on_once_it_is_resumed(site: Site, device: DeviceThread) -> None:
    run = launch()
    token = token_of(run)

    def ask() -> CallToolResult:
        return site.talk(run, token, lambda client: client.call_tool("frontier", {}))

    with DriverThread(run):
        until(lambda: types_of(run).count("message") == 2)  # it waits
        run.ask(ControlAction.pause, "grace")
        until(lambda: Run.objects.get(pk=run.pk).status == "paused")
    refused = ask()
    run.ask(ControlAction.resume, "grace")
    with DriverThread(run):
        answered = ask()

    assert refused.structured_content["error"]["problem"] == "is paused: paused by grace."
    assert not answered.is_error


def test_a_run_that_ends_answers_whoever_waits(site: Site) -> None:
    judge, answers = SlowJudge(), []

    async def ask(client: Client) -> None:
        await client.call_tool("write_candidate", WRITE)
        answers.append(await client.call_tool("benchmark", {"candidate": 1}))

    with DeviceThread(judge):
        run = launch()
        asking = threading.Thread(target=site.talk, args=(run, token_of(run), ask))
        with DriverThread(run):
            asking.start()
            assert judge.asked.wait(30)
            run.ask(ControlAction.stop, "grace")
            asking.join(30)
            judge.go.set()

    fault = answers[0].structured_content["error"]
    assert fault["problem"] == "has been stopped: stopped by grace."


# Who is let in


def post(site: Site, run_pk: int, token: str | None, **headers: str) -> httpx2.Response:
    sent: dict[str, Any] = {**HEADERS, **headers}
    if token is not None:
        sent["Authorization"] = f"Bearer {token}"
    return httpx2.post(f"{site.url}/mcp/runs/{run_pk}/", json=DISCOVER, headers=sent)


def test_a_token_opens_its_own_run(site: Site) -> None:
    run = launch()
    answer = post(site, run.pk, token_of(run))
    assert answer.status_code == 200
    assert "write_candidate" in answer.text


def test_whatever_is_no_valid_token_of_the_run_learns_nothing(site: Site) -> None:
    run, other = launch(), launch()
    replaced, held, foreign = token_of(run), token_of(run), token_of(other)
    expired, over = launch(), launch()
    gone, late = token_of(expired), token_of(over)
    past = timezone.now() - timedelta(seconds=1)
    Token.objects.filter(run=expired).update(expires_at=past)
    make_event(over, RunPayload(RunStatus.running, "started", over.spec))
    make_event(over, RunPayload(RunStatus.finished, "done"))
    Run.objects.filter(pk=over.pk).update(ended_at=past - models.GRACE)
    attempts = [
        (run.pk, None),
        (run.pk, "wd_wrong"),
        (run.pk, held[:-1]),
        (run.pk, replaced),
        (run.pk, foreign),
        (other.pk, held),
        (expired.pk, gone),
        (over.pk, late),
        (999_999, held),
    ]

    answers = [post(site, pk, token) for pk, token in attempts]

    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert all(answer.headers["www-authenticate"] == "Bearer" for answer in answers)
    assert not ToolRequest.objects.exists()


def test_a_run_that_has_just_ended_says_so(site: Site) -> None:
    run = launch()
    token = token_of(run)
    make_event(run, RunPayload(RunStatus.running, "started", run.spec))
    make_event(run, RunPayload(RunStatus.finished, "goal reached"))

    answer = site.talk(run, token, lambda client: client.call_tool("frontier", {}))

    assert answer.structured_content["error"]["problem"] == "has finished: goal reached."


def test_a_foreign_host_or_a_page_of_another_site_is_refused(site: Site) -> None:
    run = launch()
    token = token_of(run)
    assert post(site, run.pk, token, Host="evil.example").status_code == 421
    assert post(site, run.pk, token, Origin="http://evil.example").status_code == 403
    assert post(site, run.pk, token, Origin=site.url).status_code == 200


def test_a_request_that_is_too_large_is_refused(site: Site) -> None:
    run = launch()
    headers = {**HEADERS, "Authorization": f"Bearer {token_of(run)}"}
    body = b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"x" * 2 * 1024**2 + b'"}'
    headers["Content-Type"] = "application/json"
    answer = httpx2.post(site.address(run), content=body, headers=headers)
    assert answer.status_code == 413


def test_nothing_but_post_is_served(site: Site) -> None:
    run = launch()
    headers = {**HEADERS, "Authorization": f"Bearer {token_of(run)}"}
    answer = httpx2.get(site.address(run), headers=headers)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
