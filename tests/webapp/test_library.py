"""The knowledge base as an agent's tools see it: published entries, the nearest first."""

from __future__ import annotations

from importlib import metadata
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from mcp import Client
from mcp.types import CallToolResult

from kernels.catalog import load_problem
from runner.tuning import Setting
from tests.factories import make_candidate, make_run, make_user
from tests.runner.workbench import Workbench
from tests.webapp.fakes import DeviceThread
from tests.webapp.outside import DriverThread, Site, launch, text_of, token_of
from webapp.knowledge.drafting import draft_of
from webapp.knowledge.library import DatabaseLibrary
from webapp.knowledge.models import Entry
from webapp.runs.models import Run

pytestmark = pytest.mark.django_db

LIBRARY = DatabaseLibrary("softmax", "host", "cpp")


def entry(title: str = "Unrolling pays.", status: str = "published", **more: Any) -> Entry:
    """An entry about softmax on the host, measured with what is installed here."""
    run = make_run("finished")
    found = draft_of(make_candidate(run, speedup=more.pop("speedup", 2.0)))
    versions = {"torch": metadata.version("torch"), "triton": metadata.version("triton")}
    found.evidence["versions"] = versions
    for name, value in {"title": title, "constants": {}, **more}.items():
        setattr(found, name, value)
    curator = make_user()
    found.save_first(curator, "draft")
    found.move_to(Entry.Status(status), curator)
    return found


def slugs(query: str = "", limit: int = 8) -> list[str]:
    return [each.slug for each in LIBRARY.search(query, limit)]


def test_drafts_and_retired_entries_are_neither_listed_nor_read() -> None:
    shown = entry()
    for status in ("draft", "retired"):
        hidden = entry(status=status)
        assert LIBRARY.read(str(hidden.pk)) is None
    assert slugs() == [str(shown.pk)]
    assert slugs("unrolling") == [str(shown.pk)]


@pytest.mark.parametrize(
    "field", ["title", "mechanism", "device_scope", "shapes_scope", "counter_examples"]
)
def test_a_word_is_found_in_claim_mechanism_and_scope(field: str) -> None:
    found = entry(**{field: "It takes a Xylophone core."})
    entry("Another matter.")
    assert slugs("xylophone") == [str(found.pk)]


def test_an_entry_that_holds_more_of_the_words_comes_first() -> None:
    one = entry("Prefetching pays.")
    both = entry("Streaming and prefetching pay.")
    assert slugs("streaming prefetching") == [str(both.pk), str(one.pk)]


def test_a_word_in_the_claim_counts_for_more_than_one_in_the_scope() -> None:
    claim = entry("Streaming stores pay.")
    scope = entry("Wide loads pay.", shapes_scope="With streaming stores.")
    assert slugs("streaming") == [str(claim.pk), str(scope.pk)]


def test_the_problem_then_the_device_then_the_language_of_the_run_come_first() -> None:
    elsewhere = entry(problem="matmul")
    on_gpu = entry(device_kind="cuda", device_scope="H200")
    in_python = entry(language="triton")
    nearest = entry()
    assert slugs() == [str(each.pk) for each in (nearest, in_python, on_gpu, elsewhere)]


def test_of_equals_the_faster_comes_first() -> None:
    fast, slow = entry(speedup=3.0), entry(speedup=1.1)
    assert slugs() == [str(fast.pk), str(slow.pk)]


def test_a_word_that_occurs_nowhere_finds_nothing() -> None:
    entry()
    assert slugs("zeppelin") == []


def test_no_more_are_listed_than_were_asked_for() -> None:
    for _ in range(3):
        entry()
    assert len(slugs("", 2)) == 2


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"problem": "sorting"}, "the problem sorting is not in the catalog any more"),
        ({"kernel": "softmax_old"}, "the kernel softmax_old is not in the zoo any more"),
        ({"constants": {"UNROLL": 3}}, "softmax_rows no longer offers UNROLL = 3"),
        ({"constants": {"LANES": 4}}, "softmax_rows no longer offers LANES = 4"),
    ],
)
def test_what_the_catalog_has_no_more_is_marked(changed: dict[str, Any], said: str) -> None:
    found = entry(**changed)
    assert LIBRARY.search("", 1)[0].caution == f"may not hold any more: {said}"
    assert said in (LIBRARY.read(str(found.pk)) or "")


def test_a_kernel_whose_source_has_changed_is_marked() -> None:
    kernel = load_problem("softmax").kernels("cpp")[0]
    setting = Setting(kernel, tuple(each.default for each in kernel.parameters))
    same = make_candidate(make_run(), source=setting.source).source_sha256
    for digest, said in ((same, ""), ("0" * 64, "has changed since it was measured")):
        Entry.objects.all().delete()
        found = entry(constants=setting.constants)
        found.evidence["source_sha256"] = digest
        found.save()
        caution = LIBRARY.search("", 1)[0].caution
        assert (said in caution) if said else not caution


def test_another_release_of_what_baselines_are_built_with_is_marked() -> None:
    found = entry()
    for version, stale in (("1.2.3", True), (metadata.version("torch"), False)):
        found.evidence["versions"] = {"torch": version}
        found.save()
        assert (f"measured with torch {version}" in LIBRARY.search("", 1)[0].caution) is stale


def test_what_is_in_doubt_comes_after_what_is_not() -> None:
    doubtful = entry(kernel="softmax_old", speedup=9.0)
    sound = entry()
    assert slugs() == [str(sound.pk), str(doubtful.pk)]


def test_an_entry_is_read_with_scope_evidence_and_source() -> None:
    found = entry(mechanism="Four chains hide the latency.", not_tested="Rows of one element.")
    text = LIBRARY.read(str(found.pk)) or ""
    assert text.startswith("Unrolling pays.")
    for part in (
        "## Mechanism\n\nFour chains",
        "## Not tested\n\nRows of one element.",
        "zoo kernel softmax_rows",
        "- 4096x2048-fp32: 2.00× over torch (95% 1.96–2.04), faster",
        'extern "C" void softmax_fp32()',
    ):
        assert part in text


def test_an_entry_is_read_without_its_source_when_the_store_has_it_no_more() -> None:
    found = entry()
    found.evidence["source_sha256"] = "0" * 64
    found.save()
    Run.objects.all().delete()
    text = LIBRARY.read(str(found.pk)) or ""
    assert "2.00× over torch" in text
    assert "source that was measured" not in text


@pytest.mark.parametrize("slug", ["", "0", "-1", "x", "1 OR 1", "9" * 40, "²", "١"])
def test_a_name_of_no_entry_reads_nothing(slug: str) -> None:
    assert LIBRARY.read(slug) is None


def test_a_search_asks_the_database_once_however_many_entries_there_are() -> None:
    for _ in range(5):
        entry()
    with CaptureQueriesContext(
        connection,
    ) as asked:
        assert len(slugs("unrolling", 5)) == 5
    assert len(asked) == 1


def test_the_tools_of_an_agent_read_it() -> None:
    found = entry()
    bench = Workbench(library=LIBRARY)
    listed = bench.call("search_knowledge", query="unrolling").text
    assert listed.startswith(f"- {found.pk} (softmax, cpp on host, 2.00×): Unrolling pays.")
    assert "Unrolling pays." in bench.call("read_knowledge", entry=str(found.pk)).text
    assert bench.refused("read_knowledge", entry="99999")["field"] == "entry"


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("valkey")
def test_an_agent_of_a_driven_run_reads_what_was_published() -> None:
    entry()

    async def ask(client: Client) -> CallToolResult:
        return await client.call_tool("search_knowledge", {"query": "unrolling"})

    with Site() as site, DeviceThread():
        run = launch()
        with DriverThread(run):
            answer = site.talk(run, token_of(run), ask)
    assert "Unrolling pays." in text_of(answer)
