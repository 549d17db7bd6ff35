"""`manage.py control`: the same requests from the command line."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from runner.spec import Budgets
from tests.factories import make_run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("valkey")]


def test_each_action_becomes_a_request_of_who_asks() -> None:
    run = make_run("running", agent="claude", budgets=Budgets(evaluations=24, tokens=100_000))

    call_command("control", "--by", "ada", str(run.pk), "steer", "mind", "the tail")
    call_command("control", "--by", "ada", run.uuid, "pause")
    call_command("control", "--by", "ada", str(run.pk), "resume")
    call_command(
        *("control", "--by", "ada", str(run.pk), "extend"),
        *("--evaluations", "40", "--minutes", "20", "--tokens", "none"),
    )
    call_command("control", "--by", "grace", str(run.pk), "stop")

    made = [request.payload for request in run.requests.all()]
    assert [(each.action, each.by) for each in made] == [
        ("steer", "ada"),
        ("pause", "ada"),
        ("resume", "ada"),
        ("extend", "ada"),
        ("stop", "grace"),
    ]
    assert made[0].text == "mind the tail"
    assert made[3].budgets == Budgets(evaluations=40, wall_clock_s=1200.0)


def test_a_refusal_names_the_field_and_the_remedy() -> None:
    run = make_run("running")

    with pytest.raises(CommandError, match="action: it is not paused"):
        call_command("control", str(run.pk), "resume")
    with pytest.raises(CommandError, match="evaluations: 0 is outside 1–1000"):
        call_command("control", str(run.pk), "extend", "--evaluations", "0")
    with pytest.raises(CommandError, match="there is no run 987654"):
        call_command("control", "987654", "stop")
    assert not run.requests.exists()
