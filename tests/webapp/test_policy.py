"""The content security policy is on every answer, pages and errors alike."""

from __future__ import annotations

import pytest
from django.test import Client
from django.urls import reverse

from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("address", ["/runs/", "/no-such-page/", "/static/js/run.js"])
def test_every_answer_forbids_scripts_that_are_not_our_own_files(
    client: Client, address: str
) -> None:
    client.force_login(make_user("alice"))
    policy = client.get(address).headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "script-src" not in policy, "scripts fall under default-src, which allows nothing inline"
    assert "frame-ancestors 'none'" in policy


def test_the_sign_in_page_has_it_too(client: Client) -> None:
    assert "Content-Security-Policy" in client.get(reverse("sign-in")).headers
