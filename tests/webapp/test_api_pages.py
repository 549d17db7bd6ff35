"""Connecting an outside agent: the token is shown once, to who is signed in, and kept nowhere."""

from __future__ import annotations

import hashlib
import html
import io
import json
import logging
import re

import pytest
from django.contrib.auth.models import User
from django.template.loader import render_to_string
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from tests.factories import make_run, make_user
from webapp.accounts.redaction import WithoutTokens
from webapp.api.models import PREFIX, Token
from webapp.runs.archives import export_archive
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db
TOKEN = re.compile(rf"Bearer ({PREFIX}[\w-]+)")


@pytest.fixture
def user() -> User:
    return make_user("ada")


@pytest.fixture
def page(client: Client, user: User) -> Client:
    client.force_login(user)
    return client


@pytest.fixture
def run() -> Run:
    return make_run("running", agent="external")


def address(run: Run) -> str:
    return f"/runs/{run.pk}/connect/"


def text(response: object) -> str:
    return html.unescape(response.content.decode())  # type: ignore[attr-defined]


def make_token(page: Client, run: Run) -> str:
    found = TOKEN.search(text(page.post(address(run))))
    assert found, "no token is shown"
    return found.group(1)


def test_a_token_is_shown_once_with_what_to_paste(page: Client, run: Run) -> None:
    shown = text(page.post(address(run)))
    token = TOKEN.search(shown).group(1)  # type: ignore[union-attr]
    url = f"http://testserver/mcp/runs/{run.pk}/"
    command = f'claude mcp add --transport http warpdeck {url} --header "Authorization: Bearer'
    assert f'{command} {token}"' in shown
    pasted = json.loads(re.search(r"\{\s*\"mcpServers.*\}\s*(?=</pre>)", shown, re.S).group())  # type: ignore[union-attr]
    assert pasted["mcpServers"]["warpdeck"] == {
        "type": "http",
        "url": url,
        "headers": {"Authorization": f"Bearer {token}"},
    }
    assert token not in text(page.get(address(run)))


def test_no_answer_with_a_token_is_kept_by_a_browser(page: Client, run: Run) -> None:
    assert "no-store" in page.post(address(run))["Cache-Control"]


def test_a_token_has_256_random_bits_and_only_its_digest_is_stored(page: Client, run: Run) -> None:
    token = make_token(page, run)
    assert len(token.removeprefix(PREFIX)) == 43
    row = Token.objects.get(run=run)
    assert row.digest == hashlib.sha256(token.encode()).hexdigest()
    assert Token.objects.admits(run.pk, token)


def test_a_new_token_revokes_the_one_before(page: Client, run: Run) -> None:
    first, second = make_token(page, run), make_token(page, run)
    assert not Token.objects.admits(run.pk, first)
    assert Token.objects.admits(run.pk, second)


def test_a_token_can_be_revoked_without_a_new_one(page: Client, run: Run) -> None:
    token = make_token(page, run)
    page.post(address(run), {"revoke": "1"})
    assert not Token.objects.admits(run.pk, token)
    assert "Revoke" not in text(page.get(address(run)))


def test_a_token_is_in_no_archive(page: Client, run: Run) -> None:
    token = make_token(page, run)
    file = io.BytesIO()
    export_archive(run, file)
    assert token.encode() not in file.getvalue()


def test_a_token_is_in_no_log_line() -> None:
    token = f"{PREFIX}{'aB3-_' * 8}xyz"
    record = logging.makeLogRecord({"msg": "refused %s", "args": (f"Bearer {token}",)})
    WithoutTokens().filter(record)
    assert record.getMessage() == "refused Bearer wd_…"


def test_the_part_of_the_run_page_comes_alone(page: Client, run: Run) -> None:
    fragment = text(page.get(address(run), headers={"HX-Request": "true"}))
    whole = text(page.get(address(run)))
    assert fragment.startswith('<section class="panel" id="connect"')
    assert "<html" not in fragment
    assert "<html" in whole
    assert fragment.partition("<form")[0] in whole


def test_the_part_costs_four_queries(
    page: Client, run: Run, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    make_token(page, run)
    with django_assert_num_queries(4):  # session, user, run, token
        page.get(address(run), headers={"HX-Request": "true"})


def test_it_says_whether_an_agent_has_connected(page: Client, run: Run) -> None:
    token = make_token(page, run)
    assert "not connected yet" in text(page.get(address(run)))
    Token.objects.admits(run.pk, token)
    assert re.search(r"</span> connected</span> last seen", text(page.get(address(run))))


def test_nobody_makes_a_token_without_signing_in(client: Client, run: Run) -> None:
    assert client.post(address(run)).status_code == 302
    assert not Token.objects.exists()


def test_a_form_of_another_site_makes_no_token(user: User, run: Run) -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(user)
    assert strict.post(address(run)).status_code == 403
    assert not Token.objects.exists()


def test_a_run_of_our_own_agent_gets_no_token(page: Client) -> None:
    run = make_run("running")
    assert page.post(address(run)).status_code == 409
    assert "worked on by the search agent" in text(page.get(address(run)))
    assert not Token.objects.exists()


def test_a_run_that_is_over_gets_no_token(page: Client) -> None:
    run = make_run("finished", agent="external")
    assert page.post(address(run)).status_code == 409
    assert "This run is over" in text(page.get(address(run)))
    assert not Token.objects.exists()


def test_the_place_in_the_run_page_asks_for_the_rest(
    page: Client, run: Run, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(0):
        place = render_to_string("api/_connect.html", {"run": run})
        ours = render_to_string("api/_connect.html", {"run": make_unsaved(run, "search")})
    assert f'hx-get="{address(run)}"' in place
    assert f'href="{address(run)}"' in place
    assert not ours.strip()


def make_unsaved(run: Run, agent: str) -> Run:
    return Run(pk=run.pk, spec_text=run.spec_text.replace('"external"', f'"{agent}"'))
