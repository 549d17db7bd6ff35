"""What a candidate's page says of it without a device: numbers, findings by line, every level."""

from __future__ import annotations

import gzip
import io
import re
from dataclasses import replace

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from runner.analysis import stored
from runner.analysis.levels import Level, Levels
from runner.events import AnalysisPayload, RunPayload, RunStatus
from tests.factories import make_candidate, make_event, make_run, make_user
from tests.webapp.analysed import (
    FEWER_WARPS,
    ROWS,
    TILE,
    add_analysis,
    add_candidate,
    analysed,
    payload_of,
    report_of,
)
from webapp.runs import store
from webapp.runs.archives import export_archive, import_archive
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db

SCRIPT = "<script>alert(1)</script>"
SPILL = {
    "kind": "register_spill",
    "severity": "warning",
    "message": "it spills 12 bytes",
    "source": {"file": "c1.py", "line": 32},
}


@pytest.fixture
def alice(client: Client) -> Client:
    client.force_login(make_user("alice"))
    return client


@pytest.fixture
def run() -> Run:
    return make_run("running", language="triton")


def page_of(client: Client, address: str, status: int = 200) -> str:
    response = client.get(address)
    assert response.status_code == status
    return response.content.decode()


def plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def with_levels(run: Run, content: bytes, language: str = "triton") -> str:
    """The address of the levels of a candidate whose artifact holds these bytes."""
    row = add_candidate(run, TILE, language)
    add_analysis(run, AnalysisPayload(row.number, "clean", target="sm_90", case="c"), content)
    return f"/runs/{run.pk}/c/{row.number}/levels/"


def test_a_candidate_nobody_analysed_says_so_and_offers_no_levels(alice: Client, run: Run) -> None:
    make_candidate(run)
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    assert "Not analysed." in page
    assert "level-tabs" not in page


def test_numbers_stand_beside_where_they_were_read_and_those_of_the_parent(
    alice: Client, run: Run
) -> None:
    analysed(run, TILE)
    analysed(run, FEWER_WARPS)
    first, second = (plain(page_of(alice, f"/runs/{run.pk}/c/{n}/")) for n in (1, 2))
    assert "registers 64 ptxas, of a thread" in first
    assert "threads 512 256 PTX, of a block" in second
    assert "limited by registers" in second


def test_a_parent_analysed_for_another_target_lends_no_numbers(alice: Client, run: Run) -> None:
    analysed(run, TILE, target="sm_80")
    analysed(run, FEWER_WARPS)
    assert "threads 256 PTX, of a block" in plain(page_of(alice, f"/runs/{run.pk}/c/2/"))


def test_findings_of_analysis_and_simulation_stand_at_their_source_line(
    alice: Client, run: Run
) -> None:
    add_candidate(run, TILE)
    race = {**SPILL, "kind": "write_race", "severity": "error", "message": "two programs write"}
    add_analysis(run, AnalysisPayload(1, "review", (SPILL,)))
    add_analysis(run, AnalysisPayload(1, "review", (race,), tool="simulate"))
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    line = page[page.index('id="L32"') : page.index('id="L33"')]
    assert line.count("<details") == 2
    assert plain(line).index("✕ error two programs write") < plain(line).index(
        "⚠ warning it spills"
    )
    assert 'class="gutter bad"' in line
    assert '<a href="#L32">line 32</a>' in page


def test_the_latest_analysis_is_shown_and_the_others_are_a_link_away(
    alice: Client, run: Run
) -> None:
    analysed(run, TILE, target="sm_80")
    seq = run.last_seq
    report = report_of(TILE)
    add_analysis(run, payload_of(1, report), stored.pack(report.levels))
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    assert f'href="/runs/{run.pk}/c/1/?analysis={seq}#analysis">Analysis for sm_80' in page
    older = plain(page_of(alice, f"/runs/{run.pk}/c/1/?analysis={seq}"))
    assert "Analysis ✓ clean sm_80" in older


@pytest.mark.parametrize(
    ("level", "inside"),
    [
        ("ttir", "tt.load"),
        ("ttgir", "#ttg.blocked"),
        ("llir", "define ptx_kernel void"),
        ("ptx", "ld.param.b64"),
        ("sass", "SR_TID.X"),
    ],
)
def test_every_level_is_a_fragment_and_a_page_of_its_own(
    alice: Client, run: Run, level: str, inside: str
) -> None:
    analysed(run, TILE)
    fragment = page_of(alice, f"/runs/{run.pk}/c/1/levels/?level={level}")
    assert "<html" not in fragment
    page = page_of(alice, f"/runs/{run.pk}/c/1/?level={level}&kernel=softmax_short_rows")
    for text in (fragment, page):
        assert inside in text
        assert re.search(r'data-source="3\d"', text)
    assert 'href="#L32"' in page


def test_lines_of_a_level_lead_to_the_source_line_that_they_are_from(
    alice: Client, run: Run
) -> None:
    analysed(run, TILE)
    lines = report_of(TILE).levels[0].level("ttgir").lines
    page = page_of(alice, f"/runs/{run.pk}/c/1/levels/?level=ttgir")
    rows = re.findall(r'data-source="(\d+)"><span class="ln">(\d+)</span>', page)
    assert {int(line): int(source) for source, line in rows} == lines


def test_the_assembly_of_a_cpp_candidate_is_there_too(alice: Client, run: Run) -> None:
    analysed(run, ROWS, "cpp")
    page = page_of(alice, f"/runs/{run.pk}/c/1/?level=asm")
    assert ">Assembly</a>" in page
    assert ">PTX</a>" not in page
    text = report_of(ROWS, "cpp").levels[0].level("asm").text
    line = 1 + text[: text.index("vmaxps")].count("\n")
    assert "vmaxps" in page_of(alice, f"/runs/{run.pk}/c/1/levels/?level=asm&from={line}")
    assert "◑ incomplete" in plain(page)
    assert plain(page).count("host code is compiled but not examined") == 1


def test_an_imported_run_shows_its_analyses_and_levels(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    make_event(run, RunPayload(RunStatus.stopped, "stopped"))
    file = io.BytesIO()
    export_archive(run, file)
    run.delete()
    again = import_archive(io.BytesIO(file.getvalue()), None).run
    page = plain(page_of(alice, f"/runs/{again.pk}/c/1/?level=ptx"))
    assert "registers 64 ptxas" in page
    assert "ld.param.b64" in page


def test_a_long_level_comes_in_windows_that_lead_to_one_another(alice: Client, run: Run) -> None:
    text = "".join(f"line number {n}\n" for n in range(1, 1001))
    levels = Levels("k", "sm_90", (Level("ptx", text, {950: 7}),))
    address = with_levels(run, stored.pack([levels]))
    page = page_of(alice, f"{address}?level=ptx")
    assert "line number 400<" in page
    assert "line number 401<" not in page
    assert "lines 1–400 of 1000" in plain(page)
    assert "from=401" in page
    assert "line number 1000<" in page_of(alice, f"{address}?level=ptx&from=99999999")
    assert "line number 950<" in page_of(alice, f"{address}?level=ptx&line=7")
    assert "line number 1<" in page_of(alice, f"{address}?level=ptx&from=-3&line=x")


def test_a_megabyte_in_one_line_is_cut_on_the_page_and_whole_in_the_download(
    alice: Client, run: Run
) -> None:
    levels = Levels("k", "sm_90", (Level("llir", "x" * 1_000_000),))
    address = with_levels(run, stored.pack([levels]))
    page = page_of(alice, f"{address}?level=llir")
    assert len(page) < 20_000
    assert "999000 more characters: see the download" in page
    response = alice.get(f"{address}?level=llir&download=1")
    assert response.content == b"x" * 1_000_000
    assert response["Content-Type"].startswith("text/plain")
    assert response["Content-Disposition"].startswith("attachment")
    assert "sandbox" in response["Content-Security-Policy"]


def test_kernels_of_one_name_are_chosen_by_their_key(alice: Client, run: Run) -> None:
    levels = [Levels("k", "sm_90", (Level("ptx", f"text {n}\n"),)) for n in (1, 2)]
    address = with_levels(run, stored.pack(levels))
    assert "text 1" in page_of(alice, f"{address}?level=ptx")
    assert "text 2" in page_of(alice, f"{address}?level=ptx&kernel=k~2")
    assert "has no kernel" in page_of(alice, f"{address}?level=ptx&kernel=other")
    assert alice.get(f"{address}?level=ptx&kernel=other&download=1").status_code == 404


def test_hostile_text_in_levels_stays_text(alice: Client, run: Run) -> None:
    hostile = f'{SCRIPT}\u202e\x1b"'
    table = {1: -5, 2: 10**9}
    level = Level("ptx", f"{hostile}\n{hostile}\n", table)
    odd = Level(hostile, hostile)
    address = with_levels(run, stored.pack([Levels(hostile, hostile, (level, odd))]))
    for page in (
        page_of(alice, f"{address}?level=ptx"),
        page_of(alice, address.replace("levels/", "?level=ptx")),
        page_of(alice, f"{address}?level=sass"),
        page_of(alice, address, 200) + page_of(alice, f"{address}?level={SCRIPT}&kernel={SCRIPT}"),
    ):
        assert SCRIPT not in page
        assert not re.search("[\u202e\x1b]", page)
    name = alice.get(address, {"level": hostile, "download": "1"})["Content-Disposition"]
    assert name == f'attachment; filename="softmax-run{run.pk}-c1.level.txt"'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no archive", "cannot be read: the stored levels are damaged"),
        (stored.pack(report_of(TILE).levels)[:900], "the stored levels are damaged"),
        (gzip.compress(b"[" * 100_000), "the stored levels are damaged"),
        (gzip.compress(b" " * (stored.MAX_BYTES + 2)), "unpack to more than 33,554,432 bytes"),
        (stored.pack([]), "kept no kernel"),
        (stored.pack([Levels("k", "t", ())]), "k of c1 has no PTX, only nothing."),
    ],
    ids=["text", "cut", "deep", "bomb", "empty", "no level"],
)
def test_levels_that_cannot_be_shown_are_said_and_the_page_stands(
    alice: Client, run: Run, content: bytes, said: str
) -> None:
    address = with_levels(run, content)
    assert said in plain(page_of(alice, f"{address}?level=ptx"))
    page = page_of(alice, address.replace("levels/", "?level=ptx"))
    assert said in plain(page)
    assert 'id="L1"' in page


def test_levels_whose_bytes_are_gone_name_the_remedy(alice: Client, run: Run) -> None:
    analysed(run, TILE)
    store.path(str(run.events.last().log.artifacts[0].sha256)).unlink()  # type: ignore[union-attr]
    page = plain(page_of(alice, f"/runs/{run.pk}/c/1/?level=ptx"))
    assert "Import the run&#x27;s archive again to bring them back." in page


def test_an_analysis_that_could_not_be_made_says_why_there_are_no_levels(
    alice: Client, run: Run
) -> None:
    add_candidate(run, TILE)
    add_analysis(run, AnalysisPayload(1, "unavailable", reason="no triton here"))
    page = plain(page_of(alice, f"/runs/{run.pk}/c/1/?level=ptx"))
    assert "There are no levels of c1: no triton here" in page


def test_an_analysis_of_a_strange_form_does_not_hide_the_candidate(alice: Client, run: Run) -> None:
    add_candidate(run, TILE)
    report = payload_of(1, report_of(TILE))
    add_analysis(run, replace(report, verdict=SCRIPT, resources={"kernels": [{"mix": SCRIPT}]}))
    add_analysis(run, replace(report, tool=SCRIPT, case=SCRIPT, scope=(SCRIPT,), reason=SCRIPT))
    page = page_of(alice, f"/runs/{run.pk}/c/1/")
    assert SCRIPT not in page
    assert "alert(1)" in page


def test_queries_do_not_grow_with_analyses(alice: Client) -> None:
    counts = []
    for others in (1, 12):
        run = make_run("running", language="triton")
        analysed(run, TILE)
        analysed(run, FEWER_WARPS)
        for _ in range(others):
            add_analysis(run, payload_of(2, report_of(TILE)))
            add_analysis(run, payload_of(1, report_of(TILE)))
        for address in ("", "?level=ptx", "levels/?level=ptx"):
            with CaptureQueriesContext(connection) as queries:
                page_of(alice, f"/runs/{run.pk}/c/2/{address}")
            counts.append(len(queries))
    assert counts[:3] == counts[3:]
    assert max(counts) <= 16


def test_an_analysis_of_another_candidate_or_run_is_not_taken_for_this_ones(
    alice: Client, run: Run
) -> None:
    for number in range(1, 12):
        add_candidate(run, f"{TILE}# {number}\n")
    add_analysis(run, AnalysisPayload(11, "review", ({**SPILL, "evidence": {"candidate": 1}},)))
    other = make_run("running", language="triton")
    add_candidate(other, TILE)
    assert "Not analysed." in page_of(alice, f"/runs/{run.pk}/c/1/")
    assert "Not analysed." in page_of(alice, f"/runs/{other.pk}/c/1/")
    assert "it spills 12 bytes" in page_of(alice, f"/runs/{run.pk}/c/11/")
