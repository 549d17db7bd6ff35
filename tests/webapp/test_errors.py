"""Pages for what went wrong: in our frame, in plain words, and in the log where it is our fault."""

from __future__ import annotations

import logging

import pytest
from django.test import Client

from tests.factories import make_user
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


@pytest.mark.parametrize("address", ["/runs/99/", "/no/such/page/", "/knowledge/99/"])
def test_an_address_that_names_nothing_says_so_in_our_frame(alice: Client, address: str) -> None:
    response = alice.get(address)
    assert response.status_code == 404
    page = response.content.decode()
    assert "There is nothing at this address" in page
    assert '<a href="/fleet/"' in page, "the rail is there to go on from"


def test_an_old_form_is_refused_in_plain_words_and_changes_nothing() -> None:
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(make_user("alice"))
    response = strict.post("/runs/new/", {"problem": "softmax"})
    assert response.status_code == 403
    assert "nothing was changed" in response.content.decode()
    assert not Run.objects.exists()


def test_a_foreign_host_name_is_refused_with_the_setting_that_allows_it(alice: Client) -> None:
    response = alice.get("/runs/", HTTP_HOST="evil.example")
    assert response.status_code == 400
    assert "WARPDECK_HOSTS" in response.content.decode()


def test_our_fault_is_said_and_logged_with_its_traceback(
    alice: Client, caplog: pytest.LogCaptureFixture
) -> None:
    alice.raise_request_exception = False
    run = Run.objects.create(spec_text="not JSON", problem="softmax", device="host")
    logging.getLogger("django").propagate = True
    try:
        response = alice.get(f"/runs/{run.pk}/")
    finally:
        logging.getLogger("django").propagate = False
    assert response.status_code == 500
    assert "this is our fault" in response.content.decode()
    assert any(record.exc_info for record in caplog.records)
