"""Connecting an outside agent from the run page, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.factories import make_run
from tests.webapp.test_pages_runs_browser import Open, open_page
from webapp.api.models import Token

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["open_page"]  # a fixture


def test_a_person_makes_a_token_on_the_run_page_and_copies_what_to_paste(open_page: Open) -> None:
    run = make_run("running", agent="external")
    page = open_page(run.get_absolute_url())
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = page.locator("#connect")
    panel.get_by_role("button", name="Make a token").click()
    command = panel.locator("pre").first
    expect(command).to_contain_text(f"/mcp/runs/{run.pk}/ --header")
    copy = panel.locator("[data-copy=connect-command]")
    copy.click()
    expect(copy).to_have_text("Copied")
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == command.inner_text()
    token = re.search(r"Bearer (\S+)\"", copied)
    assert token is not None
    assert Token.objects.admits(run.pk, token.group(1))
