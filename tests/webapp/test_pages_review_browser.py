"""Compare and roofline in a real browser, under a policy that forbids inline scripts and eval."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.test import Client
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runner.events import AnalysisPayload
from runner.results import Ceiling
from runner.wire import canonical, to_json
from tests.chromium import chromium
from tests.factories import HOST, make_candidate, make_run, make_user
from tests.webapp.analysed import FEWER_WARPS, TILE, add_analysis, analysed
from webapp.fleet.models import Device
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
DRAWN = "[data-roofline] .scatterlayer .points path.point"
Open = Callable[[str], Page]


def under_policy(route: Route) -> None:
    response = route.fetch()
    headers = {**response.headers, "content-security-policy": POLICY}
    route.fulfill(response=response, headers=headers)


@pytest.fixture
def open_page(
    live_server: LiveServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Open]:
    """Opens an address of a signed-in reader. Any error or refusal there fails the test."""
    # Playwright keeps an event loop in this thread; the rows are still only read in between.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    client.force_login(make_user("alice"))
    cookie = {"name": "sessionid", "value": client.cookies["sessionid"].value}
    errors: list[str] = []
    with chromium() as browser:
        context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme="light")
        context.add_cookies([{**cookie, "url": live_server.url}])
        page = context.new_page()
        page.route("**/*", lambda route: under_policy(route))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)

        def open_address(address: str) -> Page:
            page.goto(live_server.url + address)
            return page

        yield open_address
    assert errors == []


def changed_run() -> Run:
    run = make_run("finished")
    body = "".join(f"int a{n};\n" for n in range(40))
    make_candidate(run, speedup=1.2, source=f"int first = 1;\n{body}int last = 1;\n")
    make_candidate(run, speedup=2.4, source=f"int first = 2;\n{body}int last = 2;\n", parent=1)
    return run


def test_keys_walk_the_changes_and_turn_the_comparison_around(open_page: Open) -> None:
    run = changed_run()
    page = open_page(f"/compare/?a={run.pk}.1&b={run.pk}.2")
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator("#change-2")).to_be_focused()
    expect(page.locator("[data-position]")).to_have_text("change 2 of 2")
    assert page.url.endswith("#change-2")
    page.keyboard.press("p")
    expect(page.locator("#change-1")).to_be_focused()
    page.keyboard.press("u")
    expect(page.locator(".diff.unified")).to_be_visible()
    page.wait_for_load_state()
    page.keyboard.press("s")
    page.wait_for_url(lambda url: f"a={run.pk}.2&b={run.pk}.1&view=unified" in url)


def test_an_address_of_a_folded_line_unfolds_it(open_page: Open) -> None:
    run = changed_run()
    page = open_page(f"/compare/?a={run.pk}.1&b={run.pk}.2#B20")
    expect(page.locator("#B20")).to_be_in_viewport()


def test_choosing_another_side_compares_at_once(open_page: Open) -> None:
    run = changed_run()
    third = make_candidate(run, speedup=2.5, source="int other = 3;\n", parent=2)
    page = open_page(f"/compare/?a={run.pk}.1&b={run.pk}.2")
    page.select_option("#pick-b", f"{run.pk}.{third.number}")
    page.wait_for_url(f"**b={run.pk}.3**")
    expect(page.locator(".diff")).to_contain_text("int other = 3;")


def test_the_chart_draws_every_point_follows_the_theme_and_leads_to_its_candidate(
    open_page: Open,
) -> None:
    roofs = (
        Ceiling("DRAM copy", "B/s", 200e9, "measured", "copied"),
        Ceiling("FP32 FMA", "FLOP/s", 2e12, "measured", "multiplied", "fp32"),
    )
    Device.objects.create(
        name="host",
        kind="host",
        info_text=canonical(to_json(HOST)),
        ceilings_text=canonical(to_json(roofs)),
    )
    run = changed_run()
    page = open_page(f"/runs/{run.pk}/roofline/")
    expect(page.locator(DRAWN)).to_have_count(2)
    expect(page.locator("[data-roofline]")).to_contain_text("DRAM copy 200 GB/s · measured")
    ink = "getComputedStyle(document.querySelector('[data-roofline] .xtitle')).fill"
    light = page.evaluate(ink)
    page.select_option("[data-theme-select]", "dark")
    page.wait_for_function(f"{ink} !== '{light}'")
    box = page.locator(DRAWN).last.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.wait_for_url(f"**/runs/{run.pk}/c/2/")


def test_the_candidate_page_is_walked_with_j_and_k(open_page: Open) -> None:
    run = changed_run()
    page = open_page(f"/runs/{run.pk}/c/1/")
    page.keyboard.press("j")
    page.wait_for_url("**/c/2/")  # waits for its scripts as well
    page.keyboard.press("k")
    page.wait_for_url("**/c/1/")


def analysed_run() -> Run:
    run = make_run("running", language="triton")
    analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    return run


def test_a_level_opens_beside_the_source_and_the_address_names_it(open_page: Open) -> None:
    run = analysed_run()
    page = open_page(f"/runs/{run.pk}/c/1/")
    page.get_by_role("link", name="TTGIR").click()
    expect(page.locator(".level-text")).to_contain_text("tt.get_program_id")
    expect(page.locator(".level-tabs [aria-current]")).to_have_text("TTGIR")
    assert "level=ttgir" in page.url
    page.reload()
    expect(page.locator(".level-text")).to_contain_text("tt.get_program_id")


def test_lines_that_belong_together_light_up_together(open_page: Open) -> None:
    run = analysed_run()
    page = open_page(f"/runs/{run.pk}/c/1/?level=ttgir")
    page.locator("#L32 code").hover()
    expect(page.locator('.ll.lit[data-source="32"]')).to_have_count(3)
    expect(page.locator(".ll.lit")).to_have_count(3)
    page.locator('.ll[data-source="31"] code').first.hover()
    expect(page.locator(".cl.lit")).to_have_id("L31")


def test_a_click_on_a_line_brings_the_other_side_into_view(open_page: Open) -> None:
    run = analysed_run()
    page = open_page(f"/runs/{run.pk}/c/1/?level=sass")
    page.locator("#L38 .ln").click()  # what it became is in another window
    expect(page.locator('.ll.lit[data-source="38"]').first).to_be_in_viewport()
    page.locator('.ll[data-source="28"] .src, .ll[data-source="38"] .src').first.click()
    expect(page.locator(".cl.lit")).to_be_in_viewport()


def test_n_and_p_walk_the_findings_beside_the_source(open_page: Open) -> None:
    run = make_run("running", language="triton")
    analysed(run, TILE)
    finding = {"kind": "tail_wave", "severity": "warning", "message": "idle"}
    places = tuple({**finding, "source": {"file": "c1.py", "line": line}} for line in (32, 38))
    add_analysis(run, AnalysisPayload(1, "review", places))
    page = open_page(f"/runs/{run.pk}/c/1/")
    for key, line in (("n", 32), ("n", 38), ("p", 32)):
        page.keyboard.press(key)
        expect(page.locator(f"#L{line} + .line-note > summary")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#L32 + .line-note")).to_contain_text("Choose a tile that divides the work")


def test_the_keyboard_walks_the_changes_of_a_level_too(open_page: Open) -> None:
    run = analysed_run()
    page = open_page(f"/compare/?a={run.pk}.1&b={run.pk}.2&tab=sass")
    page.keyboard.press("n")
    page.keyboard.press("n")
    expect(page.locator("#change-2")).to_be_focused()
    page.keyboard.press("u")
    expect(page.locator(".diff.levels.unified")).to_be_visible()
    page.wait_for_load_state()
    page.keyboard.press("s")
    page.wait_for_url(lambda url: f"a={run.pk}.2" in url and "tab=sass" in url)


@pytest.mark.parametrize("address", ["c/2/?level=ptx", "c/2/"])
def test_a_narrow_page_does_not_scroll_sideways(open_page: Open, address: str) -> None:
    run = analysed_run()
    page = open_page("/runs/")
    page.set_viewport_size({"width": 400, "height": 800})
    for where in (f"/runs/{run.pk}/{address}", f"/compare/?a={run.pk}.1&b={run.pk}.2&tab=ptx"):
        open_page(where)
        width = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert page.evaluate(width) <= 0
