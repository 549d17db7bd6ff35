"""Takes the documentation's screenshots from a run that really happened, light and dark.

    python -m tests.screens LINK RUN OUT

LINK is a one-time sign-in link of a running Warpdeck, RUN the number of a run there with at least
two candidates, OUT the folder for the PNG files.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page

from tests.chromium import chromium

WIDTH, HEIGHT = 1500, 950


def pages(page: Page, base: str, run: str) -> dict[str, str]:
    """What to show: names of files and their addresses."""
    page.goto(f"{base}/runs/{run}/")
    compare = page.get_by_role("link", name="Compare best with first").get_attribute("href")
    best = page.locator("#run-outline a.on b").inner_text().removeprefix("c")
    return {
        "run": f"{base}/runs/{run}/",
        "compare": f"{base}{compare}",
        "roofline": f"{base}/runs/{run}/roofline/",
        "candidate": f"{base}/runs/{run}/c/{best}/",
        "launch": f"{base}/runs/new/?problem=softmax&agent=claude",
    }


def shoot(browser: Browser, link: str, run: str, out: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(link)
    base = re.sub(r"(://[^/]+)/.*", r"\1", link)
    shots = pages(page, base, run)
    page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for name, address in shots.items():
            page.goto(address, wait_until="networkidle")
            page.wait_for_timeout(500)  # the chart draws after the page is quiet
            page.screenshot(path=out / f"{name}-{scheme}.png")


def main() -> None:
    link, run, out = sys.argv[1:]
    Path(out).mkdir(parents=True, exist_ok=True)
    with chromium() as browser:
        shoot(browser, link, run, Path(out))


if __name__ == "__main__":
    main()
