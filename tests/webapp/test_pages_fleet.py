"""What the fleet page says of workers."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.factories import make_user
from tests.webapp.fakes import register

pytestmark = pytest.mark.django_db


def test_each_agent_worker_says_which_agents_it_runs_and_what_it_lacks_for_others() -> None:
    register(lacking={"claude": "ANTHROPIC_API_KEY <b>is not set</b>"})
    alice = Client()
    alice.force_login(make_user())

    page = alice.get("/fleet/").content.decode()

    assert "drives runs of external, search" in page
    assert "not claude: ANTHROPIC_API_KEY &lt;b&gt;is not set" in page
