"""Tools that write candidates and notes: what they log, once, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest

from kernels.catalog import load_problem
from runner.analysis.findings import Analysis, AnalysisVerdict, Finding, FindingKind, Severity
from runner.conversation import Call
from runner.tools.write_candidate import IDEA_CHARACTERS, SOURCE_CHARACTERS
from runner.tools.write_note import CHARACTERS
from tests.runner.workbench import SPILL, FakeExaminer, Workbench, kernel, review

SOURCE = "int one;\nint two;\nint three;\nint two;\n"


@pytest.fixture
def bench() -> Workbench:
    made = Workbench()
    made.call("write_candidate", source=SOURCE, idea="Three numbers.")
    return made


def test_a_candidate_keeps_source_idea_parent_author_language_and_call(bench: Workbench) -> None:
    bench.call("write_candidate", source="int four;\n", idea="Four.", parent=1)
    made = bench.loop.state.candidates[2]
    assert (made.idea, made.parent, made.author, made.language, made.call) == (
        "Four.",
        1,
        "claude",
        "cpp",
        "e2.1",
    )
    assert bench.loop.source(2) == "int four;\n"


def test_a_new_candidate_is_analysed_and_the_findings_are_shown_with_their_lines() -> None:
    examiner = FakeExaminer(review(SPILL, kernels=(kernel(spilled=8),)))
    bench = Workbench(language="triton", examiner=examiner)
    answer = bench.call("write_candidate", source=SOURCE, idea="Three numbers.")
    for part in (
        "c1 is written: 4 lines.",
        "c1 analyze for sm_90 on 8192x16384-bf16: review: 8 bytes are spilled",
        "Kernel rows: registers 64, spilled 8 B, shared 16 KiB, warps 32 (50%",
        "- warning register_spill line 2: 8 bytes",
        "     1 | int one;\n>    2 | int two;\n     3 | int three;",
        "remedy: Use a smaller tile or more warps",
        "read_details(call='e1.1')",
    ):
        assert part in answer.text
    assert "steps:\n    load x\n    store x" in answer.details
    assert bench.events("analysis") == 1


def test_a_candidate_stands_where_nothing_can_analyse_it() -> None:
    broken = Workbench(examiner=FakeExaminer(RuntimeError("Triton does not start here")))
    answer = broken.call("write_candidate", source=SOURCE, idea="Three numbers.")
    assert "unavailable: Triton does not start here" in answer.text
    assert list(broken.loop.state.candidates) == [1]
    assert "no examiner" in Workbench().call("write_candidate", source="x\n", idea="X.").text


def test_a_defect_of_the_analysis_is_not_the_agent_s_fault() -> None:
    bench = Workbench(examiner=FakeExaminer(KeyError("levels")))
    with pytest.raises(KeyError):
        bench.call("write_candidate", source=SOURCE, idea="Three numbers.")


def test_what_a_source_does_to_the_compiler_is_told_with_the_line_it_names() -> None:
    broken = Finding(FindingKind.compile_error, Severity.error, "expected ';'")
    examiner = FakeExaminer(Analysis(AnalysisVerdict.error, "expected ';'", (broken,), ()))
    answer = Workbench(examiner=examiner).call("write_candidate", source=SOURCE, idea="Broken.")
    assert "c1 analyze: error: expected ';'" in answer.text


@pytest.mark.parametrize(
    ("arguments", "field", "said"),
    [
        ({"source": " \n"}, "source", "is empty"),
        ({"idea": " "}, "idea", "is empty"),
        ({"idea": "x" * (IDEA_CHARACTERS + 1)}, "idea", "has 501 characters"),
        ({"source": "x" * (SOURCE_CHARACTERS + 1)}, "source", "has 131,073 characters"),
        ({"source": SOURCE}, "source", "is that of c1"),
        ({"parent": 7}, "parent", "there is no c7"),
    ],
)
def test_what_cannot_be_a_candidate_is_refused_and_nothing_is_logged(
    arguments: dict[str, Any], field: str, said: str, bench: Workbench
) -> None:
    whole = {"source": "int four;\n", "idea": "Four."} | arguments
    error = bench.refused("write_candidate", **whole)
    assert (error["field"], said in error["problem"]) == (field, True)
    assert bench.events("candidate") == 1


def test_a_refused_source_may_be_written_again_once_it_is_put_right(bench: Workbench) -> None:
    bench.refused("write_candidate", source=SOURCE, idea="The same.")
    bench.call("write_candidate", source=SOURCE + "// more\n", idea="Another.")
    assert bench.events("candidate") == 2


@pytest.mark.parametrize("dies_after", ["candidate", "analysis"])
def test_a_driver_that_dies_while_writing_leaves_one_candidate(dies_after: str) -> None:
    examiner = FakeExaminer()
    bench = Workbench(examiner=examiner)
    call = Call("m", "write_candidate", {"source": SOURCE, "idea": "Three numbers."})
    bench.raw(call, "e1.1")
    kinds = [event.type.value for event in bench.log.events]
    del bench.log.events[kinds.index(dies_after) + 1 :]
    bench.restart()
    again = bench.raw(call, "e1.1")
    assert again.text.startswith("c1 is written: 4 lines.")
    assert (bench.events("candidate"), bench.events("analysis")) == (1, 1)


def test_an_edit_replaces_the_passage_and_leaves_the_parent(bench: Workbench) -> None:
    bench.call("edit_candidate", parent=1, old="int one;", new="int 1st;\nint 2nd;", idea="More.")
    assert bench.loop.source(2) == "int 1st;\nint 2nd;\nint two;\nint three;\nint two;\n"
    assert bench.loop.source(1) == SOURCE
    assert bench.loop.state.candidates[2].parent == 1


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ("int four;", "x", "old", "does not occur in c1"),
        ("int  one;", "x", "old", "does not occur in c1"),
        ("int two;", "x", "old", "occurs 2 times in c1"),
        ("int", "x", "old", "occurs 4 times in c1"),
        ("", "x", "old", "is empty"),
        ("int one;", "int one;", "new", "is the same as old"),
        (SOURCE, "", "source", "is empty"),
    ],
)
def test_an_edit_that_is_not_clear_is_refused(
    old: str, new: str, field: str, said: str, bench: Workbench
) -> None:
    error = bench.refused("edit_candidate", parent=1, old=old, new=new, idea="More.")
    assert (error["field"], said in error["problem"]) == (field, True)
    assert bench.events("candidate") == 1


def test_a_copied_zoo_kernel_keeps_its_name_and_all_its_constants() -> None:
    bench = Workbench()
    arguments = {"VECTOR": 16, "UNROLL": 4}
    bench.call("copy_zoo", kernel="softmax_rows", constants=arguments, idea="Wide.")
    made = bench.loop.state.candidates[1]
    parameters = load_problem("softmax").kernels("cpp")[0].parameters
    assert made.kernel == "softmax_rows"
    assert made.constants == {each.name: each.default for each in parameters} | arguments
    assert "constexpr int VECTOR = 16;" in bench.loop.source(1)


@pytest.mark.parametrize(
    ("kernel_name", "constants", "field", "said"),
    [
        ("softmax_fast", {}, "kernel", "no zoo kernel 'softmax_fast'"),
        ("softmax_tile", {}, "kernel", "is triton; this run is in cpp"),
        ("softmax_rows", {"LANES": 4}, "constants", "has no constant 'LANES'"),
        ("softmax_rows", {"VECTOR": 5}, "constants", "VECTOR = 5 is not offered"),
    ],
)
def test_what_the_zoo_does_not_offer_is_refused(
    kernel_name: str, constants: dict[str, int], field: str, said: str
) -> None:
    arguments = {"kernel": kernel_name, "constants": constants, "idea": "Wide."}
    error = Workbench().refused("copy_zoo", **arguments)
    assert (error["field"], said in error["problem"]) == (field, True)


def test_notes_are_listed_latest_first_and_page_by_page(bench: Workbench) -> None:
    assert bench.call("list_notes").text == "There are no notes yet."
    for number in range(1, 6):
        bench.call("write_note", text=f"{number} {'x' * (CHARACTERS - 10)}")
    latest = bench.call("list_notes").text
    assert latest.startswith("5. claude: 5 xxx")
    assert latest.endswith("… 3 older: list_notes(before=4)")
    assert bench.call("list_notes", before=4).text.startswith("3. claude: 3 xxx")
    assert bench.call("list_notes", before=2).text.endswith("x")


@pytest.mark.parametrize("text", ["", " \n", "x" * (CHARACTERS + 1)])
def test_a_note_that_says_nothing_or_too_much_is_refused(text: str, bench: Workbench) -> None:
    assert bench.refused("write_note", text=text)["field"] == "text"
    assert bench.events("note") == 0


@pytest.mark.parametrize("before", [-1, 2, 99])
def test_notes_before_one_that_is_not_there_are_refused(before: int, bench: Workbench) -> None:
    error = bench.refused("list_notes", before=before)
    assert error["field"] == "before"
