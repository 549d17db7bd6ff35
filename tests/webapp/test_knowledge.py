"""From a measured candidate to a published entry that the next run reads; every change is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.http import HttpResponse
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runner.results import CaseResult, Verdict
from runner.spec import Hint
from tests.factories import (
    make_candidate,
    make_evaluation,
    make_run,
    make_timing,
    make_user,
)
from webapp.knowledge.drafting import draft_of
from webapp.knowledge.models import Entry, EntryError
from webapp.runs.models import Candidate, Run

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"


@pytest.fixture
def ada(client: Client) -> Client:
    client.force_login(make_user("ada"))
    return client


def measured(speedup: float = 2.0, **more: Any) -> Candidate:
    run = make_run("finished")
    make_candidate(run, speedup=1.0, constants={"UNROLL": 1, "STREAM": 0})
    constants = {"UNROLL": 4, "STREAM": 0}
    return make_candidate(run, speedup=speedup, parent=1, constants=constants, **more)


def entry(speedup: float = 2.0, status: str = "published", **more: Any) -> Entry:
    found = draft_of(measured(speedup))
    for name, value in more.items():
        setattr(found, name, value)
    curator = User.objects.first() or make_user("curator")
    found.save_first(curator, "draft")
    found.move_to(Entry.Status(status), curator)
    return found


def fill(client: Client, address: str, **changed: str) -> HttpResponse:
    """Send the form of a page back as it came, but for what is changed."""
    form = client.get(address).context["form"]
    data = {name: form[name].value() or "" for name in form.fields}
    response = client.post(address, {**data, **changed})
    assert isinstance(response, HttpResponse)
    return response


def page_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    return response.content.decode()


def promote_address(candidate: Candidate) -> str:
    return f"/runs/{candidate.run_id}/c/{candidate.number}/promote/"


def test_a_candidate_becomes_a_draft_then_a_published_entry_that_runs_read(ada: Client) -> None:
    candidate = measured(2.0)
    response = fill(ada, promote_address(candidate), mechanism="Four chains hide the latency.")
    found = Entry.objects.get()
    assert response["Location"] == found.get_absolute_url()
    assert found.status == "draft"
    assert Entry.objects.hints_for("softmax", "host") == ()
    ada.post(f"/knowledge/{found.pk}/publish/")
    found.refresh_from_db()
    assert (found.status, found.published_by and found.published_by.username) == (
        "published",
        "ada",
    )
    assert Entry.objects.hints_for("softmax", "host") == (
        Hint(str(found.pk), found.title, "softmax_rows", {"UNROLL": 4, "STREAM": 0}),
    )
    notes = list(found.revisions.values_list("number", "note"))
    assert notes == [(2, "published"), (1, "draft from c2")]


def test_the_claim_is_made_of_what_was_measured() -> None:
    assert draft_of(measured(2.0)).title == (
        "softmax on Test CPU: softmax_rows with UNROLL=4 runs 2.00× (95% 1.96–2.04) over torch"
        " on 4096x2048-fp32."
    )


@pytest.mark.parametrize(
    ("speedup", "said"),
    [(1.0, "cannot be told from torch in speed: 1.00×"), (0.5, "is slower than torch: 0.50×")],
)
def test_the_claim_never_says_faster_where_the_interval_does_not(speedup: float, said: str) -> None:
    assert said in draft_of(measured(speedup)).title


def test_the_draft_says_what_was_not_tested() -> None:
    draft = draft_of(measured())
    assert "Timed: 4096x2048-fp32." in draft.shapes_scope
    assert "Checked, not timed: odd-1023x777-fp32." in draft.shapes_scope
    assert "Any device but Test CPU" in draft.not_tested
    assert "Data types: bf16." in draft.not_tested
    assert "8192x16384-bf16" in draft.not_tested


def test_the_mechanism_takes_the_reason_of_each_changed_constant() -> None:
    mechanism = draft_of(measured(idea="Unrolled by four.")).mechanism
    assert mechanism.startswith("Unrolled by four.\n\nUNROLL 1 → 4: ")
    assert "STREAM" not in mechanism


def test_the_evidence_outlives_its_run(ada: Client) -> None:
    found = entry(2.0)
    Run.objects.all().delete()
    found.refresh_from_db()
    assert found.candidate is None
    assert found.evidence["speedup"] == pytest.approx(2.0)
    assert found.evidence["cases"][0]["baseline"] == "torch"
    assert len(found.evidence["source_sha256"]) == 64
    page = page_of(ada, found.get_absolute_url())
    assert "no longer here; the numbers are a copy" in page
    assert "2.00×" in page


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Verdict.wrong_values, "did not pass: its verdict is wrong_values"),
        (Verdict.impossible, "did not pass: its verdict is impossible"),
        (None, "was not evaluated"),
    ],
)
def test_only_a_measured_candidate_can_be_promoted(
    ada: Client, verdict: Verdict | None, said: str
) -> None:
    candidate = make_candidate(make_run("finished"), verdict)
    assert said in page_of(ada, promote_address(candidate), 409)
    assert ada.post(promote_address(candidate), {"title": "x"}).status_code == 409
    assert not Entry.objects.exists()


def test_a_passing_candidate_without_times_cannot_be_promoted() -> None:
    found = make_evaluation(speedup=None)
    candidate = make_candidate(make_run("finished"), evaluation=found)
    with pytest.raises(EntryError, match="was not timed on every scored case"):
        draft_of(candidate)


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("title", "The claim is empty. Say in one sentence what was found"),
        ("device_scope", "The device is empty. Name the device"),
        ("shapes_scope", "The shapes and types is empty. Name the shapes and data types"),
    ],
)
def test_a_draft_without_claim_or_scope_is_refused_and_nothing_typed_is_lost(
    ada: Client, field: str, said: str
) -> None:
    typed = {"mechanism": "my own words", field: "  \n "}
    response = fill(ada, promote_address(measured()), **typed)
    assert response.status_code == 422
    assert said in response.content.decode()
    assert "my own words" in response.content.decode()
    assert not Entry.objects.exists()


def test_a_claim_that_is_too_long_says_how_long_it_may_be(ada: Client) -> None:
    response = fill(ada, promote_address(measured()), title="x" * 401)
    said = "The claim has 401 characters; the limit is 400."
    assert said in response.content.decode()


def test_a_second_promotion_points_at_the_first(ada: Client) -> None:
    candidate = measured()
    fill(ada, promote_address(candidate))
    assert "has an entry already" in page_of(ada, promote_address(candidate))


def test_every_edit_is_a_revision_with_its_difference(ada: Client) -> None:
    found = entry(mechanism="Stores bypass the cache.")
    fill(
        ada,
        f"/knowledge/{found.pk}/edit/",
        mechanism="Stores skip the cache.",
        note="a better verb",
    )
    newest, older = found.revisions.all()[:2]
    assert (newest.note, newest.by and newest.by.username) == ("a better verb", "ada")
    (change,) = newest.changes_since(older)
    assert (change.label, change.before, change.after) == (
        "mechanism",
        "Stores bypass the cache.",
        "Stores skip the cache.",
    )
    page = page_of(ada, found.get_absolute_url())
    assert re.search(r'class="w-add">skip</span>', page)


def test_an_edit_over_somebody_elses_is_refused_and_kept(ada: Client) -> None:
    found = entry()
    address = f"/knowledge/{found.pk}/edit/"
    stale = ada.get(address).context["form"]
    fill(ada, address, mechanism="the first to save")
    data = {name: stale[name].value() or "" for name in stale.fields}
    response = ada.post(address, {**data, "mechanism": "the second"})
    assert response.status_code == 422
    assert "while you were editing" in response.content.decode()
    assert "the second" in response.content.decode()
    found.refresh_from_db()
    assert found.mechanism == "the first to save"
    again = {**data, "mechanism": "the second", "seen": response.context["form"]["seen"].value()}
    assert ada.post(address, again).status_code == 302
    found.refresh_from_db()
    assert found.mechanism == "the second"


def test_status_moves_back_and_forth_and_is_recorded(ada: Client) -> None:
    found = entry(status="draft")
    for move in ("publish", "retire", "draft", "publish"):
        ada.post(f"/knowledge/{found.pk}/{move}/")
    notes = found.revisions.order_by("number").values_list("note", flat=True)
    assert list(notes) == ["draft", "published", "retired", "back to draft", "published"]


def test_publishing_twice_changes_nothing(ada: Client) -> None:
    found = entry(status="published")
    before = found.revisions.count()
    ada.post(f"/knowledge/{found.pk}/publish/")
    assert found.revisions.count() == before


def test_a_change_of_status_keeps_what_was_edited_meanwhile() -> None:
    found = entry(status="draft")
    stale = Entry.objects.get(pk=found.pk)
    curator = User.objects.get(username="curator")
    found.revise({"mechanism": "edited meanwhile"}, found.last_revision, curator, "edit")
    stale.move_to(Entry.Status.PUBLISHED, curator)
    assert Entry.objects.get(pk=found.pk).mechanism == "edited meanwhile"


@pytest.mark.parametrize("move", ["publish", "retire", "draft"])
def test_a_status_is_never_changed_by_a_link(ada: Client, move: str) -> None:
    found = entry(status="draft")
    assert ada.get(f"/knowledge/{found.pk}/{move}/").status_code == 405


def test_hints_are_the_best_published_entries_of_problem_and_device() -> None:
    speeds = [1.2, 3.0, 2.0, 1.5, 1.7, 1.9, 1.1]
    for speed in speeds:
        entry(speed)
    entry(9.0, status="retired")
    entry(9.0, status="draft")
    entry(9.0, device_kind="cuda")
    entry(9.0, problem="rmsnorm")
    entry(9.0, kernel="")
    entry(0.8)
    best = [
        float(hint.claim.split("runs ")[1].split("×")[0])
        for hint in Entry.objects.hints_for("softmax", "host")
    ]
    assert best == [3.0, 2.0, 1.9, 1.7, 1.5]


def test_an_entry_names_the_runs_that_read_it(ada: Client) -> None:
    one, other = entry(2.0), entry(3.0)
    hints = Entry.objects.hints_for("softmax", "host")
    reader = make_run("finished", hints=tuple(h for h in hints if h.entry == str(one.pk)))
    page = page_of(ada, one.get_absolute_url())
    assert f'href="/runs/{reader.pk}/"' in page
    assert list(one.readers()) == [reader]
    assert list(other.readers()) == []


def test_an_imported_runs_entry_numbers_are_not_ours() -> None:
    found = entry()
    make_run("finished", hints=Entry.objects.hints_for("softmax", "host"))
    Run.objects.update(imported=True)
    assert list(found.readers()) == []


def test_the_list_is_searched_by_words_and_filtered(ada: Client) -> None:
    entry(title="Streaming stores win", mechanism="no read for ownership")
    entry(title="Wide vectors win", status="draft")
    entry(title="An old belief", status="retired")
    everything = page_of(ada, "/knowledge/")
    assert "Streaming stores" in everything
    assert "Wide vectors" in everything
    assert "An old belief" not in everything
    assert "An old belief" in page_of(ada, "/knowledge/?status=all")
    found = page_of(ada, "/knowledge/?q=OWNERSHIP+stores")
    assert "Streaming stores" in found
    assert "Wide vectors" not in found
    assert "No entry fits" in page_of(ada, "/knowledge/?q=nothing-like-it")
    assert "No entry fits" in page_of(ada, "/knowledge/?q=%25")
    assert "Wide vectors" not in page_of(ada, "/knowledge/?status=published")


def test_the_empty_list_teaches_how_an_entry_comes_about(ada: Client) -> None:
    page = page_of(ada, "/knowledge/")
    assert "Nothing is known yet" in page
    assert "Promote…" in page


def test_hostile_words_stay_words(ada: Client) -> None:
    run = make_run("finished")
    candidate = make_candidate(run, idea=f"{SCRIPT}\u202e\x1b")
    form = page_of(ada, promote_address(candidate))
    assert SCRIPT not in form
    fill(ada, promote_address(candidate), title=f"{SCRIPT}\u202e claim")
    found = Entry.objects.get()
    for address in ("/knowledge/", found.get_absolute_url(), f"/knowledge/{found.pk}/edit/"):
        assert SCRIPT not in page_of(ada, address)
    for address in ("/knowledge/", found.get_absolute_url()):
        assert "\u202e" not in page_of(ada, address)


def test_queries_do_not_grow_with_entries_or_revisions(ada: Client) -> None:
    one = entry()
    curator = User.objects.get(username="ada")
    counts = []
    for more in (1, 12):
        for _ in range(more):
            entry()
            one.revise({"mechanism": f"m{one.last_revision}"}, one.last_revision, curator, "edit")
        with CaptureQueriesContext(connection) as queries:
            page_of(ada, "/knowledge/")
            page_of(ada, one.get_absolute_url())
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_case_of_several_is_listed_in_the_claim() -> None:
    cases = tuple(CaseResult(f"case{n}", Verdict.passed, timing=make_timing(2.0)) for n in range(6))
    run = make_run("finished")
    candidate = make_candidate(run, evaluation=replace(make_evaluation(), cases=cases))
    title = draft_of(candidate).title
    assert title.endswith("on case0, case1, case2, case3 and 2 more cases.")


def test_an_imported_run_of_an_unknown_problem_can_be_promoted() -> None:
    candidate = measured()
    Run.objects.filter(pk=candidate.run_id).update(problem="unheard_of")
    candidate.refresh_from_db()
    draft = draft_of(Candidate.objects.select_related("run").get(pk=candidate.pk))
    assert draft.not_tested == "Any device but Test CPU; any other load on it."


def test_an_entry_behind_the_baseline_is_a_hint_when_there_is_no_better_one() -> None:
    found = entry(0.97)
    (hint,) = Entry.objects.hints_for("softmax", "host")
    assert hint.entry == str(found.pk)
