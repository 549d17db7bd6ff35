"""The launch form, and the pages that say what can be launched and where."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from kernels.catalog import load_all, slugs
from runner import units
from runner.events import RunStatus
from runner.messages import pricing
from runner.results import Ceiling, DeviceInfo
from runner.wire import canonical, to_json
from tests.factories import make_candidate, make_evaluation, make_run, make_user
from webapp.fleet.models import Device, Worker
from webapp.knowledge.models import Entry
from webapp.runs.forms import LaunchForm
from webapp.runs.models import Job, Run

pytestmark = pytest.mark.django_db

TYPED = {
    "problem": "softmax",
    "device": "host",
    "case_set": "host",
    "agent": "search",
    "workflow": "goal",
    "goal_speedup": "1.5",
    "evaluations": "12",
    "minutes": "5",
    "seed": "7",
    "use_knowledge": "on",
}


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


def serve(name: str = "host", kind: str = "host", **columns: object) -> Device:
    """A device with a live worker, and a live worker that drives agents."""
    info = DeviceInfo(name, kind, "Test CPU", f"{name}-uuid", {"cores": "2"})
    Worker.objects.get_or_create(
        name="agents@test",
        defaults={"kind": "agents", "host": "test", "pid": 1, "agents": ["search", "external"]},
    )
    return Device.objects.create(
        name=name, kind=kind, info_text=canonical(to_json(info)), worker="device@test", **columns
    )


def test_a_valid_form_becomes_a_queued_run_with_that_spec(alice: Client) -> None:
    serve()
    response = alice.post("/runs/new/", TYPED)
    run = Run.objects.get()
    assert response["Location"] == f"/runs/{run.pk}/"
    assert run.state is RunStatus.queued
    assert run.launched_by.get_username() == "alice"
    assert (run.problem, run.device) == ("softmax", "host")
    spec = run.spec
    assert (spec.case_set, spec.language, spec.agent) == ("host", "cpp", "search")
    assert (spec.goal_speedup, spec.seed) == (1.5, 7)
    assert (spec.budgets.evaluations, spec.budgets.wall_clock_s) == (12, 300.0)


def test_an_empty_goal_means_the_whole_budget(alice: Client) -> None:
    serve()
    alice.post("/runs/new/", TYPED | {"goal_speedup": ""})
    assert Run.objects.get().spec.goal_speedup is None


@pytest.mark.parametrize(
    ("field", "typed", "remedy"),
    [
        ("evaluations", "0", "Evaluations: 0 is outside 1–1000. Give a whole number"),
        ("evaluations", "many", "Evaluations: Give a whole number"),
        ("evaluations", "", "Evaluations: It is empty."),
        ("minutes", "0", "Wall clock: The wall clock must lie between 1 second and 7 days."),
        ("minutes", "nan", "Wall clock: Give the minutes as a number"),
        ("goal_speedup", "5000", "Goal: 5000× is outside 0–1000×. Leave it empty"),
        ("goal_speedup", "fast", "Goal: Give a number such as 1.5"),
        ("seed", "x", "Seed: Give a whole number"),
        ("problem", "nope", "Problem: “nope” is not offered. Use one of: "),
        ("case_set", "gpu", "Case set: “gpu” is not offered. Use one of: host"),
        ("device", "tpu", "Device: “tpu” is not offered. Use one of: host"),
        ("agent", "oracle", "Agent: “oracle” is not offered. Use one of: "),
    ],
)
def test_an_error_names_field_and_remedy_and_keeps_what_was_typed(
    alice: Client, field: str, typed: str, remedy: str
) -> None:
    serve()
    response = alice.post("/runs/new/", TYPED | {field: typed})
    page = response.content.decode()
    assert response.status_code == 422
    assert Run.objects.count() == 0
    assert "Not launched." in page
    assert remedy in page
    others = {"goal_speedup": "1.5", "evaluations": "12", "minutes": "5", "seed": "7"}
    for name, kept in (others | {field: typed}).items():
        if name in others:
            assert f'name="{name}" id="id_{name}" value="{kept}"' in page


CLAUDE = TYPED | {
    "agent": "claude",
    "model": "claude-sonnet-5-5",
    "effort": "high",
    "tokens": "400000",
    "dollars": "2.5",
}


def test_a_run_of_a_model_has_its_model_effort_and_budgets(alice: Client) -> None:
    serve()
    alice.post("/runs/new/", CLAUDE)
    spec = Run.objects.get().spec
    assert (spec.agent, spec.model, spec.effort) == ("claude", "claude-sonnet-5-5", "high")
    assert (spec.budgets.tokens, spec.budgets.dollars) == (400_000, 2.5)
    assert spec.partner is None


def test_what_does_not_apply_is_left_out_though_it_was_typed(alice: Client) -> None:
    serve()
    alice.post("/runs/new/", CLAUDE | {"agent": "search", "partner": "claude"})
    spec = Run.objects.get().spec
    assert (spec.agent, spec.model, spec.effort, spec.partner) == ("search", "", "", None)
    assert (spec.budgets.tokens, spec.budgets.dollars) == (None, None)


def test_a_flame_chase_has_a_second_agent_with_a_model_of_its_own(alice: Client) -> None:
    serve()
    chase = {"workflow": "flame_chase", "partner": "claude", "partner_model": "claude-haiku-5-5"}
    alice.post("/runs/new/", CLAUDE | chase)
    spec = Run.objects.get().spec
    assert [(p.agent, p.model) for p in spec.players] == [
        ("claude", "claude-sonnet-5-5"),
        ("claude", "claude-haiku-5-5"),
    ]


def test_a_limit_of_dollars_holds_for_a_model_that_only_the_second_agent_asks(
    alice: Client,
) -> None:
    serve()
    chase = {"agent": "search", "workflow": "flame_chase", "partner": "claude"}
    alice.post("/runs/new/", CLAUDE | chase | {"partner_model": "claude-opus-5-5"})
    assert Run.objects.get().spec.budgets.dollars == 2.5


@pytest.mark.parametrize(
    ("typed", "remedy"),
    [
        ({"dollars": "-1"}, "Dollars: -1 is outside 0–10,000."),
        ({"dollars": "five"}, "Dollars: Give a number such as 5"),
        ({"tokens": "10"}, "Tokens: 10 are too few."),
        ({"model": "gpt"}, "Model: “gpt” is not offered."),
        ({"effort": "heroic"}, "Effort: “heroic” is not offered."),
        ({"workflow": "nope"}, "Workflow: “nope” is not offered."),
        ({"workflow": "flame_chase"}, "Second agent: "),
        ({"agent": "external", "workflow": "pipeline"}, "Workflow: "),
    ],
)
def test_an_error_of_an_agent_names_its_field_and_keeps_the_rest(
    alice: Client, typed: dict[str, str], remedy: str
) -> None:
    serve()
    response = alice.post("/runs/new/", CLAUDE | typed)
    page = response.content.decode()
    assert response.status_code == 422
    assert remedy in page
    assert Run.objects.count() == 0
    assert '<option value="claude-sonnet-5-5" selected>' in page or "model" in typed
    assert f'name="minutes" id="id_minutes" value="{CLAUDE["minutes"]}"' in page


def test_an_agent_that_no_worker_can_run_says_why_and_can_still_be_launched(alice: Client) -> None:
    serve()
    Worker.objects.update(lacking={"claude": "ANTHROPIC_API_KEY is not set"})
    page = alice.get("/runs/new/?agent=claude").content.decode()
    assert page.count("not available now") == 1
    assert "ANTHROPIC_API_KEY is not set; a run would wait for it" in page
    assert alice.post("/runs/new/", CLAUDE).status_code == 302


def test_the_address_presets_agent_and_model_with_what_they_usually_take(alice: Client) -> None:
    serve()
    page = alice.get("/runs/new/?agent=claude&model=claude-haiku-5-5").content.decode()
    assert 'name="agent" value="claude" checked' in page
    assert '<option value="claude-haiku-5-5" selected>' in page
    assert 'id="id_minutes" value="60"' in page
    assert 'id="id_dollars" value="5"' in page
    assert 'id="id_minutes" value="15"' in alice.get("/runs/new/?agent=search").content.decode()


def test_the_prices_of_the_model_and_their_date_stand_beside_the_form(alice: Client) -> None:
    serve()
    page = alice.get("/runs/new/?agent=claude&model=claude-haiku-5-5").content.decode()
    side = page[page.index('id="launch-side"') :]
    model = pricing.models()["claude-haiku-5-5"]
    assert model.title in side
    assert units.dollars(model.rates.output) in side
    assert f"prices of {model.date.isoformat()}" in side
    assert "Models</h2>" not in alice.get("/runs/new/?agent=search").content.decode()


def test_a_broken_price_list_of_the_operator_costs_no_page(
    alice: Client, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    serve()
    broken = tmp_path / "prices.toml"
    broken.write_text("models = 3")
    monkeypatch.setenv(pricing.VARIABLE, str(broken))
    page = alice.get("/runs/new/?agent=claude").content.decode()
    assert "names no models" in page
    response = alice.post("/runs/new/", CLAUDE)
    assert response.status_code == 422
    assert "names no models" in response.content.decode()


def test_a_device_that_nobody_serves_is_said_before_launch_and_queues_only_when_told(
    alice: Client,
) -> None:
    page = alice.get("/runs/new/").content.decode()
    assert "No worker serves host now." in page
    refused = alice.post("/runs/new/", TYPED)
    assert refused.status_code == 422
    assert "queue anyway" in refused.content.decode()
    assert Run.objects.count() == 0
    assert alice.post("/runs/new/", TYPED | {"queue_anyway": "on"}).status_code == 302
    assert Run.objects.get().state is RunStatus.queued


def test_a_device_without_anybody_to_drive_agents_is_said_too(alice: Client) -> None:
    serve()
    Worker.objects.all().delete()
    assert "No worker that drives agents is up now." in alice.get("/runs/new/").content.decode()


def test_a_lapsed_device_says_that_it_is_not_served(alice: Client) -> None:
    device = serve()
    device.last_seen = timezone.now() - timedelta(hours=3)
    device.save()
    page = alice.get("/runs/new/").content.decode()
    assert "host · Test CPU · no worker serves it now" in page
    assert "last seen 3" in page


def test_the_address_presets_the_form_and_case_sets_follow_the_device(alice: Client) -> None:
    serve()
    serve("cuda:0", "cuda")
    page = alice.get("/runs/new/?problem=matmul&device=cuda:0").content.decode()
    assert '<option value="matmul" selected>' in page
    assert '<option value="gpu"' in page
    assert '<option value="host"' not in page[page.index('id="id_case_set"') :]


def test_an_unticked_box_stays_unticked_when_the_form_is_refreshed(alice: Client) -> None:
    ticked = LaunchForm.defaults()["use_knowledge"]
    assert ticked is True
    Entry.objects.create(
        title="Stream stores", problem="softmax", language="cpp", device_kind="host",
        kernel="softmax_rows", constants={"STREAM": 1}, status="published", speedup=1.5,
    )  # fmt: skip
    typed = {name: value for name, value in TYPED.items() if name != "use_knowledge"}
    page = alice.get("/runs/new/", typed).content.decode()
    assert 'id="id_use_knowledge">' in page
    assert 'id="id_use_knowledge" checked>' in alice.get("/runs/new/").content.decode()


def test_published_knowledge_becomes_hints_unless_it_is_unticked(alice: Client) -> None:
    serve()
    entry = Entry.objects.create(
        title="Stream stores", problem="softmax", language="cpp", device_kind="host",
        kernel="softmax_rows", constants={"STREAM": 1}, status="published", speedup=1.5,
    )  # fmt: skip
    alice.post("/runs/new/", TYPED)
    (hint,) = Run.objects.get().spec.hints
    assert (hint.entry, hint.constants) == (str(entry.pk), {"STREAM": 1})
    Run.objects.all().delete()
    alice.post("/runs/new/", {k: v for k, v in TYPED.items() if k != "use_knowledge"})
    assert Run.objects.get().spec.hints == ()


def test_the_cost_comes_from_measured_evaluations_of_the_same_problem_device_and_cases(
    alice: Client,
) -> None:
    serve()
    assert "No measurement yet" in alice.get("/runs/new/").content.decode()
    for problem, case_set, wall in (("softmax", "host", 3.0), ("softmax", "host-quick", 90.0)):
        run = make_run("running", problem=problem, case_set=case_set)
        document = to_json(make_evaluation()) | {"wall_s": wall}
        candidate = make_candidate(run, None)
        candidate.evaluation_text = json.dumps(document)
        candidate.save()
    page = alice.get("/runs/new/?problem=softmax&case_set=host&evaluations=10").content.decode()
    assert "about 30 s" in page
    assert "last 1 evaluation of softmax on host" in page
    Run.objects.update(imported=True)
    assert "No measurement yet" in alice.get("/runs/new/").content.decode()


def test_the_problems_page_lists_every_problem_of_the_catalog(alice: Client) -> None:
    make_run("finished", candidates=2)
    page = alice.get("/problems/").content.decode()
    for slug in slugs():
        assert f"/runs/new/?problem={slug}" in page
    assert "1.20×" in page


@pytest.mark.parametrize("slug", slugs())
def test_a_problem_page_states_its_whole_contract(alice: Client, slug: str) -> None:
    (problem,) = (problem for problem in load_all() if problem.slug == slug)
    response = alice.get(f"/problems/{slug}/")
    page = response.content.decode()
    for case in problem.cases:
        assert case.name in page
    for kernel in problem.zoo:
        assert kernel.name in page
    assert f"void {problem.cpp_symbol('fp32')}(" in page
    assert "def reference" in page


def test_an_unknown_problem_is_not_found(alice: Client) -> None:
    assert alice.get("/problems/nope/").status_code == 404


def test_the_fleet_page_says_what_each_device_is_and_does(alice: Client) -> None:
    assert "No device has registered yet" in alice.get("/fleet/").content.decode()
    roofs = [
        Ceiling("DRAM copy", "B/s", 21.5e9, "measured", "best of 5"),
        Ceiling("DRAM datasheet", "B/s", None, "datasheet", "unknown memory"),
    ]
    device = serve(ceilings_text=json.dumps(to_json(roofs)))
    run = make_run("running", candidates=1)
    lease = timezone.now() + timedelta(minutes=1)
    Job.objects.create(run=run, number=1, device="host", spec_text="{}", lease_until=lease)
    Job.objects.create(run=run, number=2, device="host", spec_text="{}")
    page = alice.get("/fleet/").content.decode()
    assert "Test CPU" in page
    assert "21.5 GB/s" in page
    assert "unknown memory" in page
    assert f"softmax · run {run.pk}" in page
    assert "1 evaluation<" in page
    device.last_seen = timezone.now() - timedelta(minutes=4)
    device.save()
    assert "away" in alice.get("/fleet/").content.decode()
