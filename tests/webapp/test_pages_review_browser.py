"""Compare and roofline in a real browser, under a policy that forbids inline scripts and eval."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from django.test import Client
from playwright.sync_api import Page, Route, expect
from pytest_django.live_server_helper import LiveServer

from runner.results import Ceiling
from runner.wire import canonical, to_json
from tests.chromium import chromium
from tests.factories import HOST, make_candidate, make_run, make_user
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
