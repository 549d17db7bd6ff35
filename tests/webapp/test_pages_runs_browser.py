"""The run page in a real browser, against a server without sockets: all it shows came by polling.

What needs a socket, a worker or a cut wire is the end-to-end test's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from runner.events import NotePayload, RunPayload, RunStatus
from tests.chromium import chromium
from tests.factories import make_candidate, make_event, make_run, make_user
from tests.webapp.conversations import Talk
from webapp.runs.models import Run
from webapp.runs.rendering import render_event

pytestmark = pytest.mark.django_db(transaction=True)

Open = Callable[[str], Page]


@pytest.fixture
def open_page(
    live_server: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Opens an address of a signed-in reader. Any error of a script fails the test."""
    # Playwright keeps an event loop in this thread; the rows are still only read in between.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    client.force_login(make_user("alice"))
    cookie = {"name": "sessionid", "value": client.cookies["sessionid"].value}
    errors: list[str] = []
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1400, "height": 800})
        context.add_cookies([{**cookie, "url": live_server.url}])
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))

        def open_address(address: str) -> Page:
            page.goto(live_server.url + address)
            return page

        yield open_address
    assert errors == []


def seqs(page: Page) -> list[int]:
    rows = page.locator("[data-trace] .ev")
    return [int(seq) for seq in rows.evaluate_all("rows => rows.map(row => row.dataset.seq)")]


def last_row(run: Run, page: Page) -> Locator:
    run.refresh_from_db()
    return page.locator(f"#seq-{run.last_seq}")


def test_without_a_socket_the_page_still_shows_every_step_and_the_end(open_page: Open) -> None:
    run = make_run("running", candidates=2)
    page = open_page(f"/runs/{run.pk}/")
    for number in range(3):
        make_event(run, NotePayload("bob", f"late note {number}"))
    expect(last_row(run, page)).to_be_visible(timeout=20_000)
    expect(page.locator("[data-health]")).to_contain_text("polling", timeout=20_000)
    make_event(run, RunPayload(RunStatus.finished, "the budget is used"))
    expect(page.locator("[data-health]")).to_contain_text("ended", timeout=20_000)
    expect(page.locator("#run-title")).to_contain_text("the budget is used")
    run.refresh_from_db()
    assert seqs(page) == list(range(1, run.last_seq + 1))


def test_a_reader_who_scrolled_up_is_not_moved_and_is_told_how_much_is_new(
    open_page: Open,
) -> None:
    run = make_run("running", candidates=8)
    page = open_page(f"/runs/{run.pk}/")
    page.evaluate("scrollTo(0, 100)")
    for number in range(3):
        make_event(run, NotePayload("bob", f"late note {number}"))
    new = page.locator("[data-new]")
    expect(new).to_have_text("3 new ↓", timeout=20_000)
    assert page.evaluate("scrollY") == 100
    new.click()
    expect(last_row(run, page)).to_be_in_viewport()
    expect(new).to_be_hidden()


def test_keys_step_through_the_trace_and_stand_down_inside_inputs(open_page: Open) -> None:
    run = make_run("finished", candidates=3)
    page = open_page(f"/runs/{run.pk}/")
    focused = "document.activeElement.id"
    page.keyboard.press("j")
    assert page.evaluate(focused) == "seq-1"
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate(focused) == "seq-1"
    page.keyboard.press("c")
    first = run.candidates.get(number=1)
    assert page.evaluate(focused) == f"seq-{first.seq}"
    page.keyboard.press("j")
    page.keyboard.press("e")
    assert page.locator(f"#seq-{first.seq + 1} details[open]").count() >= 2
    page.keyboard.press("/")
    page.keyboard.type("jck")
    expect(page.locator("[data-find]")).to_have_value("jck")
    page.keyboard.press("?")
    expect(page.locator("[data-shortcuts]")).to_be_hidden()


def test_the_first_key_starts_at_what_the_reader_sees(open_page: Open) -> None:
    run = make_run("finished", candidates=30)
    page = open_page(f"/runs/{run.pk}/")
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    page.keyboard.press("j")
    assert int(page.evaluate("document.activeElement.dataset.seq")) > 20


def test_finding_hides_other_steps_and_the_outline_jumps_with_a_link_to_share(
    open_page: Open,
) -> None:
    run = make_run("finished", candidates=4)
    make_candidate(run, idea="Prefetch two rows ahead.")
    page = open_page(f"/runs/{run.pk}/")
    page.locator("[data-find]").fill("prefetch two")
    shown = page.locator("[data-trace] .ev:not(.filtered)")
    expect(shown.first).to_contain_text("Prefetch two rows ahead.")
    assert 1 <= shown.count() <= 2
    page.locator("[data-find]").fill("")
    page.locator("#out-c3").click()
    seq = run.candidates.get(number=3).seq
    expect(page).to_have_url(re.compile(rf"\?seq={seq}#seq-{seq}$"))
    expect(page.locator(f"#seq-{seq}")).to_be_in_viewport()
    page.reload()
    expect(page.locator(f"#seq-{seq}")).to_be_in_viewport()


def test_earlier_steps_load_in_place(open_page: Open) -> None:
    run = make_run("finished")
    for number in range(230):
        make_event(run, NotePayload("bob", f"note {number}"))
    page = open_page(f"/runs/{run.pk}/")
    run.refresh_from_db()
    page.get_by_role("link", name=re.compile("Load earlier")).click()
    expect(page.locator("#seq-1")).to_be_attached()
    assert seqs(page) == list(range(1, run.last_seq + 1))


def test_stopping_asks_first(open_page: Open) -> None:
    run = make_run("running", candidates=1)
    page = open_page(f"/runs/{run.pk}/")
    page.locator("#act-stop").click()
    page.get_by_role("button", name="Keep running").click()
    run.refresh_from_db()
    assert run.stop_requested_by == ""
    page.locator("#act-stop").click()
    page.get_by_role("button", name="Stop the run").click()
    expect(page.locator("#run-title")).to_contain_text("stopping…")
    run.refresh_from_db()
    assert run.stop_requested_by == "alice"


def test_a_choice_in_the_launch_form_refreshes_its_side_and_keeps_what_was_typed(
    open_page: Open,
) -> None:
    page = open_page("/runs/new/?problem=softmax")
    page.get_by_role("textbox", name="Goal").fill("1.7")
    page.get_by_label("Problem").select_option("matmul")
    page.get_by_label("Seed").fill("41")
    expect(page.locator("#launch-side")).to_contain_text("of matmul on host")
    expect(page.get_by_role("textbox", name="Goal")).to_have_value("1.7")
    expect(page.get_by_label("Seed")).to_have_value("41")


def test_the_launch_form_shows_only_what_applies_to_the_agent_and_the_workflow(
    open_page: Open,
) -> None:
    page = open_page("/runs/new/?problem=softmax")
    model, dollars = page.get_by_label("Model", exact=True), page.get_by_label("Dollars")
    expect(model).to_be_hidden()
    expect(dollars).to_be_hidden()
    expect(page.get_by_label("Wall clock")).to_have_value("15")
    page.get_by_role("radio", name="claude").check()
    expect(model).to_be_visible()
    expect(dollars).to_have_value("5")
    expect(page.get_by_label("Wall clock")).to_have_value("60")
    expect(page.get_by_label("Second agent")).to_be_hidden()
    page.get_by_role("radio", name="Flame chase").check()
    page.get_by_role("radio", name="search").check()
    expect(model).to_be_hidden()
    expect(dollars).to_be_hidden()
    page.get_by_label("Second agent").select_option("claude")
    expect(page.get_by_label("Its model")).to_be_visible()
    expect(dollars).to_be_visible()
    page.get_by_label("Its model").select_option("claude-haiku-5-5")
    expect(page.locator("#launch-side")).to_contain_text("Claude Haiku 5.5")


def talking(lines: int = 0) -> Talk:
    talk = Talk()
    talk.brief("goal", 1)
    for number in range(lines):
        talk.turn(f"Turn {number}.")
    lease = timezone.now() + timedelta(minutes=5)
    Run.objects.filter(pk=talk.run.pk).update(lease_until=lease)
    return talk


def test_a_note_to_the_agent_is_sent_from_the_keyboard_and_stands_as_pending(
    open_page: Open,
) -> None:
    run = talking().run
    page = open_page(f"/runs/{run.pk}/")
    page.evaluate("window.neverReloaded = true")
    page.keyboard.press("s")
    note = page.get_by_label("Note to the agent")
    expect(note).to_be_focused()
    note.fill("Try streaming stores.")
    note.press("Control+Enter")
    expect(page.locator("[data-dialog=steer]")).to_be_hidden()
    expect(page.locator("#run-title")).to_contain_text("Try streaming stores.")
    expect(note).to_have_value("")
    assert run.requests.get().text == "Try streaming stores."
    assert page.evaluate("window.neverReloaded") is True


def test_a_pause_and_a_resumption_need_no_reload(open_page: Open) -> None:
    run = talking().run
    page = open_page(f"/runs/{run.pk}/")
    page.keyboard.press("p")
    expect(page.locator("#run-title")).to_contain_text("asked for: pause")
    expect(page.locator("#run-said")).to_contain_text("Asked for: pause")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator("#run-title")).to_contain_text("asked for: go on")
    assert [each.action for each in run.requests.all()] == ["pause", "resume"]


def test_a_refused_extension_says_why_and_keeps_what_was_typed(open_page: Open) -> None:
    run = talking().run
    page = open_page(f"/runs/{run.pk}/")
    page.locator("#act-extend").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Evaluations").fill("0")
    dialog.get_by_role("button", name="Set these limits").click()
    expect(dialog.get_by_role("status")).to_contain_text("Evaluations: 0 is outside 1–1000.")
    expect(dialog.get_by_label("Evaluations")).to_have_value("0")
    dialog.get_by_label("Evaluations").fill("40")
    dialog.get_by_role("button", name="Set these limits").click()
    expect(dialog).to_be_hidden()
    expect(page.locator("#run-title")).to_contain_text("40 evaluations")


# A socket that the test speaks through: what a server sends is the end-to-end test's.
SOCKET = """
window.WebSocket = class {
  constructor() { window.socket = this; setTimeout(() => this.onopen?.()); }
  close() {}
};
window.say = (frame) => window.socket.onmessage({ data: JSON.stringify(frame) });
"""


def say(page: Page, text: str, after: int) -> None:
    page.evaluate("frame => say(frame)", {"type": "text", "after": after, "text": text})


def test_what_an_agent_is_saying_is_shown_until_its_step_is_there(open_page: Open) -> None:
    talk = talking()
    page = open_page("/runs/")
    page.add_init_script(SOCKET)
    page.goto(page.url + f"{talk.run.pk}/")
    after = talk.run.last_seq
    say(page, "Four rows", after)
    say(page, "Four rows at once", after)
    live = page.locator(".ev-live")
    expect(live).to_have_count(1)
    expect(live).to_contain_text("claude is writing… Four rows at once")
    expect(page.locator("[data-writing]")).to_have_text("claude is writing")
    seq = talk.turn("Four rows at once hide the latency.")
    row = {"seq": seq, "type": "message", "at": "2026-11-30T12:00:00.000000+00:00"}
    html = render_event(talk.run.events.get(seq=seq))
    frame = {
        "type": "events",
        "last_seq": seq,
        "status": "running",
        "items": [row | {"html": html}],
    }
    page.evaluate("frame => say(frame)", frame)
    expect(live).to_have_count(0)
    expect(page.locator(f"#seq-{seq}")).to_contain_text("hide the latency")
    say(page, "a straggler of the turn before", after)
    expect(live).to_have_count(0)


def test_what_is_being_said_moves_nobody_who_scrolled_up_and_is_inert(open_page: Open) -> None:
    talk = talking(lines=30)
    page = open_page("/runs/")
    page.add_init_script(SOCKET)
    page.goto(page.url + f"{talk.run.pk}/")
    page.evaluate("scrollTo(0, 100)")
    hostile = "<img src=x onerror='window.hit = true'>\u202eevil \x1b[31m " + "word " * 3000
    say(page, hostile, talk.run.last_seq)
    live = page.locator(".ev-live")
    expect(live).to_have_count(1)
    assert page.evaluate("scrollY") == 100
    say(page, hostile[:200], talk.run.last_seq)
    expect(live).to_contain_text("<img src=x")
    expect(live).to_contain_text("⟦U+202E⟧evil ␛[31m")
    assert page.evaluate("window.hit") is None
    page.keyboard.press("G")
    expect(live).to_be_in_viewport()
