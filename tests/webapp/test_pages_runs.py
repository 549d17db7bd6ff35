"""Run pages in every state, with hostile text in them, and at a cost that does not grow."""

from __future__ import annotations

import io
import json
import re
from datetime import timedelta

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from runner.archive import read_archive
from runner.events import (
    AnalysisPayload,
    ControlAction,
    ControlPayload,
    HarnessErrorPayload,
    MessagePayload,
    NotePayload,
    ProfilePayload,
    RunPayload,
    RunStatus,
    ToolCallPayload,
    ToolResultPayload,
)
from runner.spec import Hint
from tests.factories import make_candidate, make_evaluation, make_event, make_run, make_user
from webapp.runs.models import Event, Run
from webapp.runs.rendering import render_event, render_events

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


def text_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    return response.content.decode()


def alive(run: Run) -> Run:
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() + timedelta(minutes=1))
    run.refresh_from_db()
    return run


def chips(page: str) -> list[str]:
    return re.findall(r'class="chip [^>]*><span aria-hidden="true">.</span> ([^<]+)<', page)


def title_of(page: str) -> str:
    return page[page.index('<div id="run-title"') : page.index('<span id="run-facts"')]


def test_a_reader_who_is_not_signed_in_is_sent_to_sign_in(client: Client) -> None:
    run = make_run("finished")
    for address in ("/runs/", f"/runs/{run.pk}/", f"/runs/{run.pk}/events/", "/runs/new/"):
        response = client.get(address)
        assert response.status_code == 302
        assert response["Location"].startswith("/sign-in/")


def test_the_empty_list_teaches_how_a_run_comes_about(alice: Client) -> None:
    page = text_of(alice, "/runs/")
    assert "No runs yet" in page
    assert "Launch a run" in page
    assert "every 3s" not in page


def test_the_list_says_speedup_over_what_and_where(alice: Client) -> None:
    make_run("finished", candidates=3)
    page = text_of(alice, "/runs/")
    assert "1.30×" in page
    assert "over <b>torch</b>" in page
    assert "Test CPU" in page


def test_the_list_filters_by_problem_and_status_and_refreshes_only_while_runs_are_active(
    alice: Client,
) -> None:
    finished = make_run("finished")
    queued = make_run("queued", problem="matmul")
    everything = text_of(alice, "/runs/")
    assert "every 3s" in everything
    only_matmul = text_of(alice, "/runs/?problem=matmul")
    assert f"/runs/{queued.pk}/" in only_matmul
    assert f"/runs/{finished.pk}/" not in only_matmul
    only_finished = text_of(alice, "/runs/?status=finished")
    assert f"/runs/{finished.pk}/" in only_finished
    assert f"/runs/{queued.pk}/" not in only_finished
    assert "every 3s" not in only_finished
    assert "No run matches" in text_of(alice, "/runs/?problem=rmsnorm")


@pytest.mark.parametrize(
    ("status", "reason", "shown"),
    [
        ("queued", "waiting: no worker serves device host", "no worker serves device host"),
        ("finished", "goal of 1.5× reached by c2", "goal of 1.5× reached by c2"),
        ("stopped", "stopped by alice", "stopped by alice"),
        ("failed", "a defect of the harness", "<b>Failed.</b> a defect of the harness"),
    ],
)
def test_the_page_says_the_state_and_its_reason(
    alice: Client, status: str, reason: str, shown: str
) -> None:
    run = make_run(status, candidates=0 if status == "queued" else 2, reason=reason)
    head = title_of(text_of(alice, f"/runs/{run.pk}/"))
    assert chips(head)[0] == status
    assert shown in head


def test_a_running_run_can_be_stopped_and_says_so(alice: Client) -> None:
    run = alive(make_run("running", candidates=1))
    head = title_of(text_of(alice, f"/runs/{run.pk}/"))
    assert chips(head)[0] == "running"
    assert "Stop…" in head
    response = alice.post(f"/runs/{run.pk}/ask/", {"action": "stop"})
    assert response["Location"] == f"/runs/{run.pk}/"
    run.refresh_from_db()
    assert run.stop_requested_by == "alice"
    head = title_of(text_of(alice, f"/runs/{run.pk}/"))
    assert "stopping…" in head
    assert "Stop…" not in head


def test_an_ended_run_cannot_be_stopped(alice: Client) -> None:
    run = make_run("finished")
    refused = alice.post(f"/runs/{run.pk}/ask/", {"action": "stop"})
    assert refused.status_code == 422
    assert "It is over (finished)" in refused.content.decode()
    run.refresh_from_db()
    assert run.stop_requested_by == ""
    assert "Stop…" not in title_of(text_of(alice, f"/runs/{run.pk}/"))


def test_a_run_whose_driver_went_silent_is_shown_as_lost(alice: Client) -> None:
    run = make_run("running", candidates=1)
    Run.objects.filter(pk=run.pk).update(lease_until=timezone.now() - timedelta(minutes=3))
    head = title_of(text_of(alice, f"/runs/{run.pk}/"))
    assert chips(head)[0] == "lost"
    assert "went silent 3" in head


def test_an_imported_run_is_read_only(alice: Client) -> None:
    run = make_run("stopped", candidates=1)
    Run.objects.filter(pk=run.pk).update(imported=True)
    page = text_of(alice, f"/runs/{run.pk}/")
    assert chips(title_of(page)) == ["stopped", "imported"]
    assert "Stop…" not in page


def test_every_event_type_has_a_row_of_its_own(alice: Client) -> None:
    run = make_run("running", candidates=1)
    for payload in (
        NotePayload("bob", "watch the tail"),
        ToolCallPayload("1", "evaluate", {"candidate": 1}),
        ToolResultPayload("1", False, "no such case"),
        AnalysisPayload(
            1, "review", ({"kind": "register_spill", "message": "12 bytes"},), {"r": 64}
        ),
        ProfilePayload(1, "ncu", False, "no counters here"),
        ControlPayload(ControlAction.stop, "bob"),
        HarnessErrorPayload("evaluate", "OSError: disk full", "Traceback …"),
        RunPayload(RunStatus.stopped, "stopped by bob"),
    ):
        make_event(run, payload)
    page = text_of(alice, f"/runs/{run.pk}/")
    seen = set(re.findall(r'data-type="(\w+)"', page))
    assert seen == {
        *("run", "message", "candidate", "evaluation", "budget", "note", "tool_call"),
        *("tool_result", "analysis", "profile", "control", "harness_error"),
    }
    for words in ("watch the tail", "no such case", "12 bytes", "no counters here", "disk full"):
        assert words in page


def test_an_evaluation_row_answers_over_what_and_how_sure() -> None:
    run = make_run("running")
    row = render_event(Event.objects.get(run=run, seq=make_candidate(run).evaluation_seq))
    assert "2.00×" in row
    assert "over torch, 95% 1.96–2.04" in row
    assert "faster" in row
    assert "1 integrity check:" in row
    assert "inputs equal their copies after" in row
    assert "baseline torch" in row


def test_a_failing_evaluation_shows_its_reason_and_no_speedup() -> None:
    run = make_run("running")
    reason = "odd-1023x777: element error 0.3 at [3, 17]"
    evaluation = make_evaluation("wrong_values", reason=reason)
    candidate = make_candidate(run, "wrong_values", evaluation=evaluation)
    row = render_event(Event.objects.get(run=run, seq=candidate.evaluation_seq))
    assert reason in row
    assert "wrong values" in row
    assert "over torch" not in row


def test_a_candidate_row_shows_what_changed_against_its_parent() -> None:
    run = make_run("running")
    make_candidate(run, source="constexpr int UNROLL = 1;\nint x;\n")
    candidate = make_candidate(run, parent=1, source="constexpr int UNROLL = 4;\nint x;\n")
    row = render_event(Event.objects.get(run=run, seq=candidate.seq))
    words = re.sub(r"<[^>]+>", "", row)
    assert "from c1" in words
    assert "constexpr int UNROLL = 1;" in words
    assert "constexpr int UNROLL = 4;" in words
    assert f"/compare/?a={run.pk}.1&amp;b={run.pk}.2" in row


def test_the_page_and_the_socket_show_the_same_row(alice: Client) -> None:
    run = make_run("running", candidates=2)
    page = text_of(alice, f"/runs/{run.pk}/")
    for row in render_events(list(run.events.all())):
        assert row.strip() in page


def test_hostile_text_stays_inert(alice: Client) -> None:
    hostile = f"{SCRIPT}\u202eevil\u2066\x1b[31m"
    hint = Hint(hostile, hostile, hostile, {hostile: 1})
    words = dict.fromkeys(("problem", "device", "case_set", "language", "agent"), hostile)
    run = make_run("running", workflow=hostile, hints=(hint,), **words)
    make_event(run, MessagePayload(hostile, hostile))
    make_event(run, NotePayload(hostile, hostile))
    make_event(run, ToolCallPayload("1", hostile, {hostile: hostile}))
    make_event(run, ToolResultPayload("1", False, hostile))
    make_event(run, AnalysisPayload(-1, hostile, ({"kind": hostile, "message": hostile},)))
    make_event(run, ProfilePayload(-7, hostile, True, "", {hostile: 1.0}))
    make_event(run, ControlPayload(ControlAction.steer, hostile, hostile))
    make_event(run, HarnessErrorPayload(hostile, hostile, hostile))
    evaluation = make_evaluation("crashed", reason=hostile, case=hostile)
    make_candidate(run, "crashed", idea=hostile, source=hostile, evaluation=evaluation)
    make_candidate(run, idea=hostile, source=hostile + "\n2", parent=1)
    make_event(run, RunPayload(RunStatus.failed, hostile))
    for address in ("", "panel/", "events/?after=0"):
        page = text_of(alice, f"/runs/{run.pk}/{address}")
        assert "alert(1)" in page
        assert SCRIPT not in page
        assert not re.search("[\u202e\u2066\x1b]", page)
    listed = text_of(alice, "/runs/")
    assert SCRIPT not in listed
    assert not re.search("[\u202e\u2066\x1b]", listed)


def test_a_megabyte_in_one_line_is_folded_with_its_size_shown(alice: Client) -> None:
    run = make_run("running")
    event = make_event(run, MessagePayload("search", "x" * 1_000_000))
    page = text_of(alice, f"/runs/{run.pk}/")
    assert len(page) < 100_000
    assert "976.0" in page.replace("\xa0", " ") or "975.9" in page.replace("\xa0", " ")
    whole = f"/runs/{run.pk}/events/{event.seq}/"
    assert whole in page
    assert json.loads(text_of(alice, whole))["payload"]["text"] == "x" * 1_000_000


def test_a_step_that_cannot_be_decoded_does_not_hide_its_neighbours(alice: Client) -> None:
    run = make_run("running", candidates=1)
    event = make_event(run, NotePayload("bob", "later"))
    body = json.loads(event.body)
    body["payload"]["mood"] = "of a newer version"
    Event.objects.filter(pk=event.pk).update(body=json.dumps(body))
    page = text_of(alice, f"/runs/{run.pk}/")
    assert "Unreadable step" in page
    assert 'data-type="evaluation"' in page


def seqs(page: str) -> list[int]:
    return [int(seq) for seq in re.findall(r'data-seq="(\d+)"', page)]


def test_a_long_log_opens_at_its_end_and_leads_back_without_a_hole(alice: Client) -> None:
    run = make_run("running")
    for number in range(450):
        make_event(run, NotePayload("bob", f"note {number}"))
    page = text_of(alice, f"/runs/{run.pk}/")
    seen = seqs(page)
    assert seen == list(range(252, 452))
    while more := re.search(r'hx-get="([^"]+before=\d+)"', page):
        page = text_of(alice, more.group(1).replace("&amp;", "&"))
        seen = seqs(page) + seen
    assert seen == list(range(1, 452))


def test_a_permalink_shows_the_steps_around_it_and_the_way_to_the_newest(alice: Client) -> None:
    run = make_run("running")
    for number in range(450):
        make_event(run, NotePayload("bob", f"note {number}"))
    page = text_of(alice, f"/runs/{run.pk}/?seq=200")
    assert seqs(page) == list(range(100, 300))
    assert 'id="seq-200"' in page
    assert 'data-at-tail="false"' in page
    assert "Newest" in page


def test_the_trace_filters_by_kind_and_by_text(alice: Client) -> None:
    run = make_run("running", candidates=2)
    make_event(run, NotePayload("bob", 'he said "two rows"\nand left'))
    page = text_of(alice, f"/runs/{run.pk}/?show=evaluations")
    assert set(re.findall(r'data-type="(\w+)"', page)) == {"evaluation"}
    found = text_of(alice, f"/runs/{run.pk}/", 200)
    assert len(seqs(found)) == run.last_seq
    page = alice.get(f"/runs/{run.pk}/", {"q": 'said "two rows"\nand'}).content.decode()
    assert seqs(page) == [run.last_seq]
    assert "No step matches" in text_of(alice, f"/runs/{run.pk}/?q=nowhere")


def test_the_fragment_gives_what_comes_after_and_says_where_the_run_stands(alice: Client) -> None:
    run = alive(make_run("running", candidates=2))
    response = alice.get(f"/runs/{run.pk}/events/?after=3")
    assert seqs(response.content.decode()) == list(range(4, run.last_seq + 1))
    assert response["X-Run-Status"] == "running"
    assert response["X-Last-Seq"] == str(run.last_seq)
    assert b"<html" not in response.content


def test_the_panels_are_swapped_in_by_id(alice: Client) -> None:
    run = make_run("running", candidates=2)
    page = text_of(alice, f"/runs/{run.pk}/panel/")
    swapped = re.findall(r'id="(run-\w+)"[^>]*hx-swap-oob="true"', page)
    assert sorted(swapped) == [
        "run-budgets",
        "run-evidence",
        "run-facts",
        "run-outline",
        "run-title",
    ]


def queries(client: Client, address: str) -> int:
    client.get(address)  # so that sessions and content types are warm
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert client.get(address).status_code == 200
    return len(captured)


def test_the_run_page_costs_the_same_queries_for_10_and_100_candidates(alice: Client) -> None:
    small, large = make_run("running", candidates=10), make_run("running", candidates=100)
    for address in ("", "panel/", "events/?after=0"):
        few = queries(alice, f"/runs/{small.pk}/{address}")
        assert queries(alice, f"/runs/{large.pk}/{address}") == few
        assert few <= 20


def test_the_list_costs_the_same_queries_for_3_and_30_runs(alice: Client) -> None:
    for _ in range(3):
        make_run("finished", candidates=1, launched_by=make_user())
    few = queries(alice, "/runs/")
    for _ in range(27):
        make_run("finished", candidates=1, launched_by=make_user())
    assert queries(alice, "/runs/") == few


def test_export_then_import_is_said_to_be_here_already(alice: Client) -> None:
    run = make_run("finished", candidates=2)
    response = alice.get(f"/runs/{run.pk}/export/")
    content = b"".join(response.streaming_content)
    assert response["Content-Type"] == "application/zip"
    with read_archive(io.BytesIO(content)) as archive:
        assert archive.manifest.run == run.uuid
    upload = io.BytesIO(content)
    upload.name = "a.warpdeck.zip"
    answer = alice.post("/runs/import/", {"archive": upload}, follow=True)
    assert f"here already, as run {run.pk}" in answer.content.decode()
    Run.objects.all().delete()
    upload.seek(0)
    answer = alice.post("/runs/import/", {"archive": upload}, follow=True)
    imported = Run.objects.get()
    assert answer.redirect_chain == [(f"/runs/{imported.pk}/", 302)]
    assert imported.uuid == run.uuid


def test_a_broken_archive_names_field_and_remedy_and_changes_nothing(alice: Client) -> None:
    upload = io.BytesIO(b"PK\x03\x04 nothing more")
    upload.name = "broken.warpdeck.zip"
    response = alice.post("/runs/import/", {"archive": upload})
    assert response.status_code == 422
    page = response.content.decode()
    assert "Not imported." in page
    assert 'role="alert"' in page
    assert Run.objects.count() == 0
    assert "Choose a *.warpdeck.zip file" in alice.post("/runs/import/").content.decode()


def test_a_run_before_its_first_step_has_nothing_to_export(alice: Client) -> None:
    run = make_run("queued")
    assert "Export" not in text_of(alice, f"/runs/{run.pk}/")
    answer = alice.get(f"/runs/{run.pk}/export/", follow=True)
    assert "nothing to export" in answer.content.decode()
