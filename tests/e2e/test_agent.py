"""A person lets a language model optimise a kernel, talks to it and sees what it costs.

Everything is real but the model: a server of the tests speaks in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Deck, raised
from tests.e2e.test_whole import shown_seqs, stored_seqs, wait_until
from tests.runner.messages_server import MessagesServer, softmax_optimisation

KEY = "sk-ant-of-the-browser-test"
PACE_S = 0.01  # between two parts of a stream, so that a browser sees it grow
RUN_MS = 120_000
NOTE = "Prefer stores past the caches."


@pytest.fixture(scope="module")
def agent_deck() -> Iterator[Deck]:
    with MessagesServer(softmax_optimisation(PACE_S), key=KEY) as server:
        given = {"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_BASE_URL": server.url}
        with raised(given) as deck:
            yield deck


@pytest.fixture(scope="module")
def page(agent_deck: Deck, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1500, "height": 950})
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    opened.goto(agent_deck.link)
    yield opened
    context.close()


def test_a_person_launches_a_model_pauses_it_steers_it_and_reads_what_it_cost(
    agent_deck: Deck, page: Page
) -> None:
    run = launch(page)
    page.evaluate("window.neverReloaded = true")
    expect(page.locator(".ev-live")).to_contain_text("is writing…", timeout=RUN_MS)
    pause_steer_and_resume(page)
    expect(page.locator("#run-title .chip").first).to_contain_text("finished", timeout=RUN_MS)
    everything_is_there(agent_deck, page, run)
    costs_are_in_the_list(page)
    assert KEY not in page.content()


def launch(page: Page) -> int:
    page.get_by_role("link", name=re.compile("Launch")).first.click()
    page.get_by_label("Problem").select_option("softmax")
    page.wait_for_load_state()
    page.get_by_label("Case set").select_option("host-quick")
    page.get_by_role("radio", name="claude").check()
    expect(page.locator("#launch-side")).to_contain_text("Claude Opus 5.5")
    expect(page.locator("#agent-claude")).not_to_contain_text("not available now")
    page.get_by_label("Dollars").fill("3")
    page.get_by_label("Evaluations").fill("8")
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url(re.compile(r"/runs/\d+/"))
    return int(re.search(r"/runs/(\d+)/", page.url).group(1))  # type: ignore[union-attr]


def pause_steer_and_resume(page: Page) -> None:
    title = page.locator("#run-title")
    page.get_by_role("button", name="Pause").click()
    expect(title.locator(".chip").first).to_contain_text("paused", timeout=RUN_MS)
    expect(title).to_contain_text("Paused by")
    page.keyboard.press("s")
    page.get_by_label("Note to the agent").fill(NOTE)
    page.keyboard.press("Control+Enter")
    expect(title).to_contain_text("steering note")
    page.get_by_role("button", name="Resume").click()
    note = page.locator("[data-trace] .ev-control", has_text=NOTE)
    expect(note).to_be_attached(timeout=RUN_MS)
    expect(title).not_to_contain_text("steering note")


def everything_is_there(deck: Deck, page: Page, run: int) -> None:
    stored = stored_seqs(deck, run)
    wait_until(lambda: shown_seqs(page) == stored, "every stored step is in the page once", 20)
    assert page.evaluate("window.neverReloaded") is True
    expect(page.locator(".ev-live")).to_have_count(0)
    rows = page.locator("[data-trace]")
    for kind, least in (("candidate", 4), ("analysis", 4), ("evaluation", 4), ("note", 1)):
        assert rows.locator(f".ev-{kind}").count() >= least, kind
    expect(rows.locator(".ev-evaluation", has_text="check only")).to_contain_text("wrong values")
    expect(rows.locator(".kind-summary")).to_contain_text("Four candidates were written.")
    calls, answers = rows.locator(".ev-tool_call"), rows.locator(".ev-tool_result")
    assert calls.count() == answers.count() >= 12
    expect(page.locator("#run-outline .stage")).to_have_count(1)
    expect(page.locator("#run-budgets")).to_contain_text(re.compile(r"cost\s*\$0\.\d+ / \$3\.00"))
    expect(page.locator(".spending")).to_contain_text("opus-5-5")


def costs_are_in_the_list(page: Page) -> None:
    page.get_by_role("link", name="Runs").first.click()
    expect(page.locator("table.runs td.cost")).to_contain_text(re.compile(r"\$0\.\d+"))
