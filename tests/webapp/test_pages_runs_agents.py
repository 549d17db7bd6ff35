"""The page of a run whose agent talks: what it says, calls, is told and costs; what people ask."""

from __future__ import annotations

import re
import time
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runner.conversation import Call, call_name
from runner.events import (
    ControlAction,
    ControlPayload,
    MessageKind,
    MessagePayload,
    RunPayload,
    RunStatus,
    ToolCallPayload,
    ToolResultPayload,
    Usage,
)
from runner.spec import AgentSpec
from runner.tools import refusal
from tests.factories import make_event, make_run, make_user
from tests.webapp.conversations import LIMITS, MODEL, Talk, softmax_talk
from webapp.runs.ledger import ledger
from webapp.runs.models import Event, Run
from webapp.runs.overview import Overview
from webapp.runs.rendering import render_event

pytestmark = pytest.mark.django_db

HOSTILE = "<script>alert(1)</script>\u202eevil\u2066\x1b[31m\ud800"


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


def page_of(client: Client, run: Run, address: str = "") -> str:
    response = client.get(f"/runs/{run.pk}/{address}")
    assert response.status_code == 200
    return response.content.decode()


def part(page: str, mark: str, end: str) -> str:
    start = page.index(mark)
    return page[start : page.index(end, start)]


def words(html: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html).split())


def last_row(run: Run, kind: str) -> str:
    return render_event(Event.objects.filter(run=run, type=kind).order_by("-seq")[0])


def alive(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() + timedelta(minutes=1))
    run.refresh_from_db()
    return run


# What is said and called


def test_a_turn_says_what_it_cost_and_leads_to_the_whole_of_it() -> None:
    talk = Talk()
    talk.turn("Four rows at once.", dollars=0.03)
    row = last_row(talk.run, "message")
    said = words(row)
    assert "claude Four rows at once." in said
    assert "opus-5-5 · 12.3k tokens in, 89% from cache · 700 out · $0.03" in said
    assert "/artifacts/" in row


def test_a_turn_whose_price_is_not_known_says_so() -> None:
    talk = Talk()
    talk.turn("Four rows at once.", dollars=None)
    assert "price not known" in words(last_row(talk.run, "message"))


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (MessageKind.nudge, "Warpdeck to the agent: Call a tool."),
        (MessageKind.notice, "⚠ notice Call a tool."),
        (MessageKind.summary, "Summary by warpdeck Call a tool."),
    ],
)
def test_each_kind_of_message_says_in_a_word_what_it_is(kind: MessageKind, shown: str) -> None:
    talk = Talk()
    talk.harness("Call a tool.", kind)
    row = last_row(talk.run, "message")
    assert shown in words(row)
    assert f"kind-{kind}" in row


def test_a_brief_is_folded_and_names_its_stage() -> None:
    talk = Talk()
    talk.brief("research", 1, "Look at what is known.\n" * 50)
    row = last_row(talk.run, "message")
    assert "Brief for claude · stage research · opens a fresh context" in words(row)
    assert row.index("<details") < row.index("Look at what is known.")


def test_short_arguments_stand_in_the_line_and_long_ones_are_folded() -> None:
    talk = Talk()
    talk.called("e3.1", "write_candidate", idea="two rows", source="int x;\n" * 100, parent=4)
    row = last_row(talk.run, "tool_call")
    line, _, folded = row.partition("<details")
    assert "write_candidate idea= two rows parent= 4" in words(line)
    assert "source , 700 bytes" in words(folded)
    assert "<pre" in folded


def test_an_answer_names_its_tool_and_leads_to_the_call_through_what_lies_between() -> None:
    talk = Talk()
    talk.called("e3.1", "write_candidate", idea="two rows")
    called = talk.run.last_seq
    talk.candidate("int x;", "two rows", "e3.1")
    talk.answered("e3.1", "c1 is written: clean.", details="x" * 3000)
    row = last_row(talk.run, "tool_result")
    assert "write_candidate answers c1 is written: clean." in words(row)
    assert f'data-jump="{called}"' in row
    assert "details, 2.9" in words(row).replace("\xa0", " ")


def test_an_answer_whose_call_is_not_the_last_one_is_not_given_to_another_tool() -> None:
    talk = Talk()
    talk.called("e3.1", "benchmark", candidate=1)
    talk.answered("e9.9", "nobody asked")
    assert "benchmark" not in last_row(talk.run, "tool_result")


def test_an_answer_is_shown_the_same_alone_and_in_its_page(alice: Client) -> None:
    run = softmax_talk().run
    page = page_of(alice, run)
    for row in Event.objects.filter(run=run, type="tool_result"):
        assert render_event(row).strip() in page


def test_a_refused_call_shows_its_field_problem_and_remedy() -> None:
    talk = Talk()
    fault = refusal("candidate", "there is no c7.", "Use one of: c1.")
    talk.call("e3.1", "benchmark", fault.text, ok=False, candidate=7)
    row = last_row(talk.run, "tool_result")
    assert "✕ error candidate there is no c7. Use one of: c1." in words(row)


@pytest.mark.parametrize("text", ["{", '{"error": 3}', '{"error": {}}', "[1]", "plain words"])
def test_an_error_that_is_not_structured_is_shown_as_it_is(text: str) -> None:
    talk = Talk()
    talk.call("e3.1", "benchmark", text, ok=False)
    assert f"✕ error {text}" in words(last_row(talk.run, "tool_result")).replace("&quot;", '"')


@pytest.mark.parametrize(
    ("scope", "shown"),
    [("check", "check only, not timed"), ("case 4096x2048-fp32", "case 4096x2048-fp32 only")],
)
def test_an_evaluation_of_a_narrower_scope_says_so(scope: str, shown: str) -> None:
    talk = Talk()
    talk.candidate("int x;", "two rows", "e3.1")
    talk.evaluated(1, scope)
    assert shown in words(last_row(talk.run, "evaluation"))


@pytest.mark.parametrize(
    ("action", "shown"),
    [
        (ControlAction.pause, "bob paused the run"),
        (ControlAction.resume, "bob let the run go on"),
        (ControlAction.stop, "bob asked to stop the run"),
    ],
)
def test_what_people_ask_is_told_in_plain_words(action: ControlAction, shown: str) -> None:
    talk = Talk()
    talk.control(action)
    assert shown in words(last_row(talk.run, "control"))


def test_a_steering_note_and_an_extension_say_what_they_hold() -> None:
    talk = Talk()
    talk.control(ControlAction.steer, "Try streaming stores.")
    assert "bob tells the agent : Try streaming stores." in words(last_row(talk.run, "control"))
    talk.control(ControlAction.extend, evaluations=40, dollars=8.0)
    row = words(last_row(talk.run, "control"))
    assert "to 40 evaluations, 15 min, 2.00M tokens, $8.00" in row


def test_hostile_words_of_an_agent_stay_inert(alice: Client) -> None:
    text = HOSTILE.removesuffix("\ud800")  # no log can hold half a character
    run = make_run("running", agent="claude", model=text, effort=text, budgets=LIMITS)
    for kind in MessageKind:
        usage = Usage(text, 1, 1, dollars=None)
        make_event(run, MessagePayload(text, text, kind, stage=text, ordinal=1, usage=usage))
    make_event(run, ToolCallPayload("1", text, {text: text, "long": text * 90}))
    make_event(run, ToolResultPayload("1", True, text * 90))
    make_event(run, ToolResultPayload("1", False, refusal(text, text, text).text))
    make_event(run, ControlPayload(ControlAction.steer, text, text))
    run.ask(ControlAction.steer, text, text)
    for address in ("", "panel/", "events/?after=0", "ask/"):
        page = page_of(alice, run, address)
        assert "<script>alert" not in page
        assert not re.search("[\u202e\u2066\x1b]", page)
    assert "<script>alert" not in alice.get("/runs/").content.decode()


def test_half_a_character_from_elsewhere_is_shown_as_a_sign() -> None:
    stored = make_event(make_run("running"), MessagePayload("claude", "whole"))
    stored.body = stored.body.replace("whole", r"half \ud800 a character")
    row = render_event(stored)
    assert "half ⟦U+D800⟧ a character" in row
    assert row.encode()


def test_a_megabyte_of_words_is_folded_wherever_it_is_said(alice: Client) -> None:
    talk = Talk()
    talk.brief("write", 1, "b" * 1_000_000)
    talk.turn("t" * 1_000_000)
    talk.call("e3.1", "write_candidate", "r" * 1_000_000, source="s" * 1_000_000)
    talk.summary("s" * 1_000_000)
    assert len(page_of(alice, talk.run)) < 300_000


# Outline, costs and budgets


def test_the_outline_has_the_stages_with_the_candidates_made_in_them(alice: Client) -> None:
    outline = part(page_of(alice, softmax_talk().run), 'id="run-outline"', "</nav>")
    assert re.findall(r"<b>(\w+)</b>", outline) == ["research", "write", "c1", "c2"]


def test_the_stages_of_two_agents_are_told_apart_by_their_models(alice: Client) -> None:
    partner = AgentSpec("claude", "claude-haiku-5-5")
    talk = Talk(workflow="flame_chase", partner=partner)
    for ordinal, model in ((1, MODEL), (2, "claude-haiku-5-5")):
        talk.brief("leg", ordinal)
        talk.turn("Mine.", model=model)
    outline = words(part(page_of(alice, talk.run), 'id="run-outline"', "</nav>"))
    assert "leg opus-5-5 1 ▤ leg haiku-5-5 2" in outline


def test_a_context_that_was_opened_afresh_is_no_second_stage(alice: Client) -> None:
    talk = Talk()
    talk.brief("goal", 1)
    talk.brief("goal", 1, "Again, from a summary.")
    outline = part(page_of(alice, talk.run), 'id="run-outline"', "</nav>")
    assert outline.count("<b>goal</b>") == 1


def test_the_outline_says_what_a_mere_check_found(alice: Client) -> None:
    talk = Talk()
    for number, verdicts in enumerate((["passed"], ["passed", "wrong_values"], ["timeout"]), 1):
        talk.candidate(f"int x{number};", "an idea", f"e{number}.1")
        for scope, verdict in zip(("check", "case odd"), verdicts, strict=False):
            talk.evaluated(number, scope, verdict)
    talk.evaluated(3, speedup=1.5)
    outline = words(part(page_of(alice, talk.run), 'id="run-outline"', "</nav>"))
    assert re.findall(r"an idea (\S+)", outline) == ["checked", "wrong", "1.50×"]


def test_costs_stand_by_agent_and_model(alice: Client) -> None:
    talk = Talk()
    talk.brief("leg", 1)
    talk.turn("One.", dollars=0.03)
    talk.turn("Two.", dollars=0.05)
    talk.turn("Three.", dollars=0.002, model="claude-haiku-5-5")
    costs = words(part(page_of(alice, talk.run), "spending", "</section>"))
    assert "claude opus-5-5 2 24.6k 89% cached 1.40k $0.08" in costs
    assert "claude haiku-5-5 1 12.3k 89% cached 700 $0.002" in costs


def test_a_turn_that_was_given_up_is_paid_by_the_agent_under_way() -> None:
    talk = Talk()
    talk.brief("goal", 1)
    usage = Usage(MODEL, 1000, 0, dollars=0.004)
    make_event(talk.run, MessagePayload("warpdeck", "Given up.", MessageKind.notice, usage=usage))
    (spending,) = ledger(talk.run).spendings
    assert (spending.agent, spending.requests, spending.dollars) == ("claude", 1, 0.004)


def test_a_ledger_that_is_read_again_goes_on_where_it_stopped() -> None:
    talk = Talk()
    talk.turn("One.", dollars=0.03)
    assert ledger(talk.run).spendings[0].requests == 1
    talk.run.events.filter(type="message").delete()  # what was read is not needed again
    talk.turn("Two.", dollars=0.05)
    (found,) = ledger(talk.run).spendings
    assert (found.requests, found.dollars) == (2, pytest.approx(0.08))


def test_one_price_that_is_not_known_makes_the_whole_cost_unknown(alice: Client) -> None:
    talk = Talk()
    talk.turn("One.", dollars=None)
    page = page_of(alice, talk.run)
    assert "not known / $5.00" in words(part(page, 'id="run-budgets"', "</header>"))


def test_the_budgets_drain_towards_the_limits_as_they_were_extended(alice: Client) -> None:
    talk = softmax_talk()
    talk.turn("Once more.")
    head = words(part(page_of(alice, talk.run), 'id="run-budgets"', "</header>"))
    assert "/ 40" in head
    assert "tokens 78.0k / 2.00M" in head
    assert "cost $0.18 / $8.00" in head


def test_the_clock_stands_while_a_run_is_paused() -> None:
    run = alive(Talk().run)
    make_event(run, RunPayload(RunStatus.paused, "paused by alice"))
    before = Overview(run).time.used
    time.sleep(0.02)
    assert Overview(run).time.used == before


def test_a_run_that_asks_no_model_shows_no_tokens_and_no_cost(alice: Client) -> None:
    page = page_of(alice, make_run("running", candidates=1))
    head = words(part(page, 'id="run-budgets"', "</header>"))
    assert "tokens" not in head
    assert "cost" not in head


def test_the_head_names_agent_model_effort_and_workflow(alice: Client) -> None:
    facts = words(part(page_of(alice, Talk().run), 'id="run-facts"', "data-health"))
    assert "claude, opus-5-5, medium effort · Goal workflow" in facts


def test_two_agents_are_named_with_what_they_share_said_once(alice: Client) -> None:
    partner = AgentSpec("claude", "claude-haiku-5-5", "medium")
    run = Talk(workflow="flame_chase", partner=partner).run
    facts = words(part(page_of(alice, run), 'id="run-facts"', "data-health"))
    assert "claude, opus-5-5 and claude, haiku-5-5, medium effort · Flame chase" in facts
    other = Talk(workflow="flame_chase", partner=AgentSpec("search")).run
    facts = words(part(page_of(alice, other), 'id="run-facts"', "data-health"))
    assert "claude, opus-5-5, medium effort and search · Flame chase" in facts


def test_the_list_has_a_column_of_costs_once_a_run_may_cost(alice: Client) -> None:
    make_run("finished", candidates=1)
    assert "cost</th>" not in alice.get("/runs/").content.decode()
    softmax_talk()
    page = alice.get("/runs/").content.decode()
    assert "cost</th>" in page
    assert "$0.15 of $5.00" in words(page)


def test_the_list_asks_no_more_for_many_runs_with_costs_than_for_few(alice: Client) -> None:
    def asked() -> int:
        alice.get("/runs/")
        with CaptureQueriesContext(connection) as captured:
            assert alice.get("/runs/").status_code == 200
        return len(captured)

    for _ in range(2):
        Talk().turn("One.")
    few = asked()
    for _ in range(10):
        Talk().turn("One.")
    assert asked() == few


def test_the_page_asks_no_more_for_a_long_conversation_than_for_a_short_one(
    alice: Client,
) -> None:
    def asked(run: Run, address: str) -> int:
        page_of(alice, run, address)
        with CaptureQueriesContext(connection) as captured:
            page_of(alice, run, address)
        return len(captured)

    short, long = softmax_talk(), softmax_talk()
    for number in range(40):
        call = Call("x", "frontier")
        seq = long.turn(f"Turn {number}.", call)
        long.call(call_name(seq, 0), "frontier", "nothing new")
    for address in ("", "panel/", "events/?after=0"):
        few = asked(short.run, address)
        assert asked(long.run, address) == few
        assert few <= 20


# What people ask


def test_a_pause_is_asked_for_and_pending_until_its_step_is_there(alice: Client) -> None:
    run = alive(Talk().run)
    assert alice.post(f"/runs/{run.pk}/ask/", {"action": "pause"})["Location"] == f"/runs/{run.pk}/"
    (request,) = run.requests.all()
    assert (request.action, request.by) == ("pause", "alice")
    title = part(page_of(alice, run), 'id="run-title"', 'id="run-facts"')
    assert "pending alice asked for: pause" in words(title)
    assert "Resume" in title
    make_event(run, request.payload)
    make_event(run, RunPayload(RunStatus.paused, "paused by alice"))
    title = part(page_of(alice, run), 'id="run-title"', 'id="run-facts"')
    assert "pending" not in words(title)
    assert "Paused by alice." in words(title)
    assert 'value="resume"' in title


def test_a_paused_run_is_marked_in_the_list_and_can_be_filtered(alice: Client) -> None:
    run = Talk().run
    make_event(run, RunPayload(RunStatus.paused, "paused by alice"))
    assert "‖ paused" in words(alice.get("/runs/?status=paused").content.decode())


def test_a_steering_note_is_kept_as_it_was_typed(alice: Client) -> None:
    run = alive(Talk().run)
    alice.post(f"/runs/{run.pk}/ask/", {"action": "steer", "text": "Try <b> stores.\n"})
    assert run.requests.get().text == "Try <b> stores."


def test_an_extension_changes_what_was_typed_and_keeps_the_rest(alice: Client) -> None:
    run = alive(Talk().run)
    form = {"action": "extend", "evaluations": "40", "minutes": "", "tokens": "", "dollars": "9"}
    assert alice.post(f"/runs/{run.pk}/ask/", form).status_code == 302
    budgets = run.requests.get().payload.budgets
    assert budgets is not None
    assert (budgets.evaluations, budgets.wall_clock_s) == (40, LIMITS.wall_clock_s)
    assert (budgets.tokens, budgets.dollars) == (None, 9.0)


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ({"action": "steer", "text": "  "}, "Note to the agent: it is empty."),
        ({"action": "resume"}, "It is not paused. Pause it first."),
        ({"action": "extend", "evaluations": "0"}, "Evaluations: 0 is outside 1–1000."),
        ({"action": "extend", "minutes": "x"}, "Wall clock: Give a number, such as 30."),
        ({"action": "extend", "dollars": "0.01"}, "Dollars: "),
        ({"action": "fly"}, "fly is not one of the available choices"),
    ],
)
def test_a_refusal_says_what_is_wrong_and_keeps_what_was_typed(
    alice: Client, form: dict[str, str], shown: str
) -> None:
    talk = Talk()
    talk.turn("One.", dollars=0.5)
    run = alive(talk.run)
    refused = alice.post(f"/runs/{run.pk}/ask/", form)
    assert refused.status_code == 422
    page = refused.content.decode()
    assert shown in words(page)
    assert run.requests.count() == 0
    for name, typed in form.items():
        if name in ("evaluations", "minutes", "dollars"):
            assert f'value="{typed}"' in page


def test_htmx_is_answered_in_place_and_told_that_it_was_taken(alice: Client) -> None:
    run = alive(Talk().run)
    asked = alice.post(f"/runs/{run.pk}/ask/", {"action": "pause"}, headers={"HX-Request": "true"})
    assert (asked.status_code, asked["HX-Trigger"]) == (200, "run-asked")
    assert b"<html" not in asked.content
    again = alice.post(f"/runs/{run.pk}/ask/", {"action": "pause"}, headers={"HX-Request": "true"})
    assert again.status_code == 422
    assert "HX-Trigger" not in again
    assert "Refused." in again.content.decode()


def test_the_same_requests_can_be_made_on_a_plain_page(alice: Client) -> None:
    run = alive(Talk().run)
    page = page_of(alice, run, "ask/?action=steer")
    for action in ("steer", "extend", "stop"):
        assert f'name="action" value="{action}"' in page
    assert 'name="dollars" id="id_dollars" value="5"' in page


def test_nothing_can_be_asked_of_a_run_that_is_over_or_was_imported(alice: Client) -> None:
    over, imported = make_run("finished", agent="claude"), Talk().run
    Run.objects.filter(pk=imported.pk).update(imported=True)
    for run in (over, imported):
        page = page_of(alice, run)
        for action in ("act-pause", "act-steer", "act-extend", "act-stop", "data-dialog"):
            assert action not in page
        assert alice.post(f"/runs/{run.pk}/ask/", {"action": "pause"}).status_code == 422


def test_a_search_is_not_offered_a_note_that_it_would_not_read(alice: Client) -> None:
    page = page_of(alice, alive(make_run("running", candidates=1)))
    assert "act-steer" not in page
    assert "act-pause" in page


def test_who_is_not_signed_in_can_ask_nothing(client: Client) -> None:
    run = alive(Talk().run)
    assert client.post(f"/runs/{run.pk}/ask/", {"action": "stop"}).status_code == 302
    assert run.requests.count() == 0
