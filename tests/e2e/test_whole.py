"""The whole path in a real browser: launch, watch, lose the network, compare, promote, publish."""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.conftest import Deck

RUN_S = 240
EVALUATIONS = 4


@pytest.fixture(scope="module")
def page(deck: Deck, browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1500, "height": 950})
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    opened.goto(deck.link)
    yield opened
    context.close()


def shown_seqs(page: Page) -> list[int]:
    rows = page.locator("[data-trace] .ev[data-seq]")
    return [int(seq) for seq in rows.evaluate_all("rows => rows.map(row => row.dataset.seq)")]


def stored_seqs(deck: Deck, run: int) -> list[int]:
    with sqlite3.connect(deck.data / "warpdeck.sqlite3") as database:
        rows = database.execute("SELECT seq FROM runs_event WHERE run_id = ? ORDER BY seq", [run])
        return [seq for (seq,) in rows]


def wait_until(condition: object, what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    assert callable(condition)
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def test_a_person_launches_watches_compares_and_publishes(deck: Deck, page: Page) -> None:
    run = launch(page)
    watch_through_a_cut(deck, page, run)
    compare(page)
    roofline(page, run)
    promote_and_publish(page, run)
    export(deck, page, run)


def launch(page: Page) -> int:
    page.get_by_role("link", name=re.compile("Launch")).first.click()
    page.get_by_label("Problem").select_option("softmax")
    page.wait_for_load_state()
    page.get_by_label("Case set").select_option("host-quick")
    page.wait_for_load_state()
    expect(page.locator("#agent-claude")).to_contain_text("not available now")  # there is no key
    page.get_by_label("Evaluations").fill("0")
    page.get_by_role("button", name="Launch").click()
    expect(page.get_by_role("alert")).to_contain_text("Not launched")
    expect(page.get_by_label("Evaluations")).to_have_value("0")
    page.get_by_label("Evaluations").fill(str(EVALUATIONS))
    page.get_by_role("button", name="Launch").click()
    page.wait_for_url(re.compile(r"/runs/\d+/"))
    return int(re.search(r"/runs/(\d+)/", page.url).group(1))  # type: ignore[union-attr]


def watch_through_a_cut(deck: Deck, page: Page, run: int) -> None:
    page.evaluate("window.neverReloaded = true")
    health = page.locator("[data-health]")
    wait_until(lambda: len(shown_seqs(page)) >= 3, "three steps in the page", RUN_S)
    expect(health).to_contain_text("live")

    deck.wire.cut()
    expect(health).to_contain_text(re.compile("reconnecting|offline"), timeout=20_000)
    before = len(shown_seqs(page))
    # The cut lasts until the log has grown behind the reader's back.
    wait_until(lambda: len(stored_seqs(deck, run)) > before + 1, "the run went on", RUN_S)
    assert len(shown_seqs(page)) == before, "steps arrived through a cut wire"
    deck.wire.mend()

    expect(page.locator("#run-title .chip").first).to_contain_text("finished", timeout=RUN_S * 1000)
    stored = stored_seqs(deck, run)
    assert stored == list(range(1, len(stored) + 1))
    wait_until(lambda: shown_seqs(page) == stored, "every stored step is in the page once", 20)
    assert page.evaluate("window.neverReloaded") is True
    expect(page.locator("[data-trace] .ev[data-type=evaluation]")).to_have_count(EVALUATIONS)


def compare(page: Page) -> None:
    """From the first candidate's page to what the second one changed, split and unified."""
    page.goto(re.sub(r"[?#].*", "", page.url))
    expect(page.locator("#run-outline a[data-jump]")).to_have_count(EVALUATIONS)
    page.locator("[data-trace] .ev[data-type=candidate]").nth(1).get_by_role(
        "link", name=re.compile("compare with c1")
    ).click()
    diff = page.get_by_role("region", name="Source difference")
    expect(diff).to_contain_text("constexpr int")
    changed = diff.locator("[data-change]")
    assert changed.count() >= 1
    expect(diff.locator(".w-add, .w-del").first).to_be_visible()
    page.get_by_role("link", name="unified").click()
    expect(page).to_have_url(re.compile("view=unified"))
    expect(diff).to_contain_text("constexpr int")
    page.keyboard.press("n")
    expect(page.locator("[data-change]:focus")).to_have_count(1)


def roofline(page: Page, run: int) -> None:
    page.goto(page.url.split("/compare/")[0] + f"/runs/{run}/roofline/")
    expect(page.locator("[data-roofline] .main-svg").first).to_be_visible()
    points = page.locator("[data-roofline] .scatterlayer .point")
    assert points.count() >= 1, "no candidate has a point"
    expect(page.get_by_role("table").first).to_contain_text("c1")


def promote_and_publish(page: Page, run: int) -> None:
    page.goto(page.url.split("/runs/")[0] + f"/runs/{run}/")
    page.locator("#run-outline a.on").click()
    best = page.locator("#run-outline a.on b").inner_text().removeprefix("c")
    page.goto(page.url.split("/runs/")[0] + f"/runs/{run}/c/{best}/")
    page.get_by_role("link", name=re.compile("Promote")).first.click()
    claim = page.get_by_label("Claim")
    expect(claim).to_have_value(re.compile("softmax"))
    page.get_by_role("button", name=re.compile("Save draft|Draft")).click()
    expect(page).to_have_url(re.compile(r"/knowledge/\d+/"))
    expect(page.locator("main")).to_contain_text("draft")
    page.get_by_role("button", name=re.compile("^Publish")).click()
    expect(page.locator("main .chip").first).to_contain_text("published")
    page.goto(page.url.split("/knowledge/")[0] + "/runs/new/?problem=softmax")
    expect(page.get_by_label(re.compile("start from what knowledge knows"))).to_be_checked()


def export(deck: Deck, page: Page, run: int) -> None:
    page.goto(f"{deck.url}/runs/{run}/")
    with page.expect_download() as download:
        page.get_by_role("link", name="Export").click()
    path = download.value.path()
    assert path.read_bytes()[:2] == b"PK"
    page.goto(f"{deck.url}/runs/")
    page.get_by_text("Import…").click()
    page.get_by_label("Run archive").set_input_files(
        {"name": "broken.warpdeck.zip", "mimeType": "application/zip", "buffer": b"PK\x03\x04 no"}
    )
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("alert")).to_contain_text("Not imported")


def test_json_of_a_step_is_the_stored_event(deck: Deck, page: Page) -> None:
    """Needs the run of the test above: a permalink answers with the event itself."""
    with sqlite3.connect(deck.data / "warpdeck.sqlite3") as database:
        run, seq, body = database.execute(
            "SELECT run_id, seq, body FROM runs_event WHERE type = 'evaluation' LIMIT 1"
        ).fetchone()
    answer = page.request.get(f"{deck.url}/runs/{run}/events/{seq}/")
    assert answer.ok
    assert answer.json() == json.loads(body)
