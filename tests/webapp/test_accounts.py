from __future__ import annotations

import logging
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from tests.factories import make_user
from webapp.accounts.models import SignInLink, local_admin
from webapp.accounts.redaction import WithoutTokens

pytestmark = pytest.mark.django_db


def signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_a_link_signs_in_once(client: Client) -> None:
    token = SignInLink.objects.issue(local_admin())

    first = client.get(f"/sign-in/{token}/")

    assert (first.status_code, first["Location"]) == (302, "/runs/")
    assert signed_in(client)
    somebody_else = Client()
    second = somebody_else.get(f"/sign-in/{token}/")
    assert second.status_code == 410
    assert not signed_in(somebody_else)


def test_an_expired_link_lets_nobody_in(client: Client) -> None:
    token = SignInLink.objects.issue(local_admin())
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))

    assert client.get(f"/sign-in/{token}/").status_code == 410
    assert not signed_in(client)


def test_the_link_of_a_person_who_left_lets_nobody_in(client: Client) -> None:
    user = make_user()
    token = SignInLink.objects.issue(user)
    user.is_active = False
    user.save()

    assert client.get(f"/sign-in/{token}/").status_code == 410


def test_the_token_itself_is_stored_nowhere() -> None:
    token = SignInLink.objects.issue(local_admin())

    link = SignInLink.objects.get()

    assert token not in [str(value) for value in vars(link).values()]


def test_the_local_admin_has_no_password(client: Client) -> None:
    admin = local_admin()

    assert not admin.has_usable_password()
    assert local_admin() == admin


def test_a_link_may_lead_to_a_page_of_ours_and_to_no_other_site(client: Client) -> None:
    token = SignInLink.objects.issue(local_admin())
    assert client.get(f"/sign-in/{token}/?next=/runs/7/")["Location"] == "/runs/7/"

    token = SignInLink.objects.issue(local_admin())
    elsewhere = client.get(f"/sign-in/{token}/?next=//evil.example/")
    assert elsewhere["Location"] == "/runs/"


@pytest.mark.parametrize("address", ["/runs/", "/fleet/", "/knowledge/", "/problems/"])
def test_a_stranger_is_sent_to_the_sign_in_page(client: Client, address: str) -> None:
    answer = client.get(address)

    assert answer.status_code == 302
    assert answer["Location"].startswith("/sign-in/")
    assert b"sign_in_link" in client.get("/sign-in/").content


def test_signing_out_takes_a_post(client: Client) -> None:
    client.force_login(make_user())

    assert client.get("/sign-out/").status_code == 405
    assert signed_in(client)
    assert client.post("/sign-out/").status_code == 302
    assert not signed_in(client)


def test_a_token_is_taken_out_of_what_is_logged() -> None:
    record = logging.LogRecord(
        "django.request", logging.WARNING, "", 0, "Gone: %s", ("/sign-in/s3cret_token/",), None
    )
    assert WithoutTokens().filter(record)
    assert record.getMessage() == "Gone: /sign-in/…/"
