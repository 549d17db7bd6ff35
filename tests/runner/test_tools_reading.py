"""Tools that only look: candidates, comparison, frontier, zoo, contract, details, analyses."""

from __future__ import annotations

import pytest

from runner.answers import sources, text
from runner.examination import LocalExaminer
from runner.results import Evaluation
from runner.spec import SpecError
from tests.runner.fakes import make_evaluation
from tests.runner.workbench import SPILL, FakeExaminer, Shelf, Workbench, kernel, review


def by_case(source: str) -> Evaluation:
    """`// 1.2 1.5` passes with these speedups on two cases."""
    first, second = map(float, source.splitlines()[0].removeprefix("// ").split())
    return make_evaluation(None, cases=(("wide", first), ("narrow", second)))


def measured(*lines: str) -> Workbench:
    bench = Workbench(judge=by_case)
    bench.write(*lines)
    for number in range(1, len(lines) + 1):
        bench.call("benchmark", candidate=number)
    return bench


def test_a_comparison_tells_each_case_with_both_intervals_and_that_it_is_indirect() -> None:
    answer = measured("1.0 1.0", "2.0 1.01").call("compare", first=1, second=2).text
    assert "- wide: c2 is faster: c2 is 2.00× as fast as c1 (within 1.96–2.04)" in answer
    assert "- narrow: cannot be told apart: c2 is 1.01× as fast as c1" in answer
    assert "  c2 2.00× over torch (95% 1.98–2.02), faster; 500 µs against 1.00 ms" in answer
    assert "Indirect: two evaluations" in answer
    assert "-// 1.0 1.0\n+// 2.0 1.01" in answer


def test_a_slower_candidate_is_called_slower() -> None:
    answer = measured("2.0 2.0", "1.0 1.0").call("compare", first=1, second=2).text
    assert "- wide: c2 is slower: c2 is 0.50× as fast as c1" in answer


def test_a_comparison_without_times_says_what_to_call() -> None:
    bench = Workbench()
    bench.write("1.0", "2.0")
    assert "c1 and c2 not timed: call benchmark" in bench.call("compare", first=1, second=2).text
    bench.call("benchmark", candidate=2)
    assert "c1 not timed: call benchmark" in bench.call("compare", first=1, second=2).text


def test_a_candidate_is_not_compared_with_itself() -> None:
    bench = Workbench()
    bench.write("1.0")
    assert bench.refused("compare", first=1, second=1)["field"] == "second"


def test_a_comparison_tells_what_changed_in_the_resources_and_findings() -> None:
    examiner = FakeExaminer(review(SPILL, kernels=(kernel(registers=255), kernel("tail"))))
    bench = Workbench(examiner=examiner, language="triton")
    bench.write("1.0")
    examiner.found = review(kernels=(kernel(registers=64), kernel("head")))
    bench.write("2.0")
    answer = bench.call("compare", first=1, second=2).text
    assert "- rows: registers 255 → 64" in answer
    assert "- tail: only in the first: registers 64" in answer
    assert "- head: only in the second: registers 64" in answer
    assert "- findings that c2 has not: register_spill" in answer


def test_kernels_of_one_name_are_told_apart() -> None:
    examiner = FakeExaminer(review(kernels=(kernel(registers=64), kernel(registers=96))))
    bench = Workbench(examiner=examiner, language="triton")
    bench.write("1.0")
    answer = bench.call("analyze", candidate=1).text
    assert "Kernel rows: registers 64" in answer
    assert "Kernel rows #2: registers 96" in answer


def test_a_file_of_many_kernels_is_told_whole_in_the_details() -> None:
    many = tuple(kernel(f"rows_{number}") for number in range(10))
    bench = Workbench(examiner=FakeExaminer(review(kernels=many)), language="triton")
    bench.write("1.0")
    answer = bench.call("analyze", candidate=1)
    assert "… 2 kernels more in the details" in answer.text
    assert "Kernel rows_9" in answer.details


def test_a_long_difference_lies_whole_in_the_details() -> None:
    bench = Workbench()
    bench.write("1.0")
    source = "".join(f"int line_{number};\n" for number in range(400))
    bench.call("write_candidate", source=source, idea="Long.")
    answer = bench.call("compare", first=1, second=2)
    assert "+int line_399;" not in answer.text
    assert "+int line_399;" in answer.details


def test_the_frontier_names_best_failed_and_unmeasured_candidates_with_the_budget() -> None:
    bench = Workbench()
    assert "Nothing has passed a benchmark yet." in bench.call("frontier").text
    bench.write("1.2", "1.5", "crashed", "1.9")
    for number in (1, 2, 3):
        bench.call("benchmark", candidate=number)
    bench.call("check", candidate=4)
    lines = bench.call("frontier").text.splitlines()
    assert lines[:2] == [
        "Frontier, best first:",
        "- c2: Idea 1.5. — 1.50× over torch (95% 1.48–1.52)",
    ]
    assert "- c3: Idea crashed. — crashed: it crashed" in lines
    assert "- c4: Idea 1.9. — not benchmarked; check passed" in lines
    assert lines[-1].startswith("Budget: 4 of 24 evaluations used")


def test_a_candidate_is_read_with_its_idea_and_standing() -> None:
    bench = Workbench()
    bench.write("1.2")
    answer = bench.call("read_candidate", candidate=1).text
    assert answer == "c1: Idea 1.2.\nnot benchmarked\n\n// 1.2\nint x;"


@pytest.mark.parametrize(
    ("first", "last", "field"),
    [(0, 0, "first_line"), (3, 0, "first_line"), (-1, 1, "first_line"), (2, 1, "last_line")],
)
def test_lines_that_are_not_there_are_refused(first: int, last: int, field: str) -> None:
    bench = Workbench()
    bench.write("1.2")
    error = bench.refused("read_candidate", candidate=1, first_line=first, last_line=last)
    assert error["field"] == field


def test_the_zoo_lists_the_language_of_the_run_first() -> None:
    cpp, triton = Workbench(), Workbench(language="triton")
    assert cpp.call("list_zoo").text.startswith("- softmax_rows (cpp)")
    assert triton.call("list_zoo").text.startswith("- softmax_tile (triton)")


def test_a_zoo_kernel_is_read_with_its_constants_and_source() -> None:
    answer = Workbench().call("read_zoo", kernel="softmax_tile").text
    assert "- NUM_WARPS = 16 (one of 4, 8, 16, 32): more warps share a row" in answer
    assert "@triton.jit" in answer
    assert Workbench().refused("read_zoo", kernel="x")["remedy"].startswith("Use one of: softmax")


def test_the_problem_is_read_with_contract_work_roofs_and_reference() -> None:
    answer = Workbench().call("read_problem").text
    for part in (
        'extern "C" void softmax_fp32(const float *x',
        "- 2048x2048-fp32: 2.1e+07 FLOP, 32 MiB moved, 0.625 FLOP per byte",
        "- x in masked-65x5003-fp32: masked,",
        "- DRAM copy: 40.0 GB/s, measured",
        "def reference(x: Tensor)",
    ):
        assert part in answer


def test_knowledge_is_listed_with_scope_and_caution_and_read_whole() -> None:
    bench = Workbench(library=Shelf())
    listed = bench.call("search_knowledge", query="unrolling").text
    assert "- 7 (softmax): Unrolling by four pays.\n  scope: fp32 on one CPU" in listed
    assert "caution: stale" in listed
    assert "no published entry that matches 'x'" in bench.call("search_knowledge", query="x").text
    assert bench.call("read_knowledge", entry="7").text.startswith("Unrolling by four pays")
    assert (
        "no published entry is called '8'" in bench.refused("read_knowledge", entry="8")["problem"]
    )


def test_without_a_knowledge_base_nothing_is_found() -> None:
    assert "no published entry" in Workbench().call("search_knowledge").text


def test_details_that_nobody_left_are_refused_with_those_that_there_are() -> None:
    bench = Workbench(examiner=FakeExaminer(review(SPILL)), language="triton")
    assert bench.refused("read_details", call="e1.1")["remedy"] == "No call has any yet."
    bench.write("1.0")
    assert "e2.1" in bench.refused("read_details", call="e1.1")["remedy"]
    assert "register_spill" in bench.call("read_details", call="e2.1").text


def test_details_are_found_in_a_context_that_did_not_make_the_call() -> None:
    bench = Workbench(examiner=FakeExaminer(review(SPILL)), language="triton")
    bench.write("1.0")
    bench.loop.brief("claude", "goal", 2, "Start afresh.")
    bench.restart()
    assert "register_spill" in bench.call("read_details", call="e1.1").text


def test_an_analysis_is_made_once_for_each_target_and_case() -> None:
    examiner = FakeExaminer()
    bench = Workbench(examiner=examiner, language="triton")
    bench.write("1.0")
    assert "Known already" in bench.call("analyze", candidate=1).text
    assert "Known already" not in bench.call("analyze", candidate=1, arch="sm_80").text
    assert "Known already" in bench.call("analyze", candidate=1, arch="sm_80").text
    assert len(examiner.asked) == 2


def test_a_simulation_runs_the_small_case_unless_another_is_named() -> None:
    examiner = FakeExaminer()
    bench = Workbench(examiner=examiner, language="triton")
    bench.write("1.0")
    text_of_small = bench.call("simulate", candidate=1).text
    assert "c1 simulate on odd-1023x777-bf16: clean" in text_of_small
    again = bench.call("simulate", candidate=1, case="odd-1023x777-bf16").text
    assert again.startswith("Known already")
    bench.call("simulate", candidate=1, case="odd-37x33333-fp32")
    assert [spec.case for spec in examiner.asked[1:]] == ["odd-1023x777-bf16", "odd-37x33333-fp32"]


@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("analyze", {"arch": "sm_1"}, "arch"),
        ("analyze", {"case": "nowhere"}, "case"),
        ("simulate", {"case": "nowhere"}, "case"),
        ("simulate", {"case": "4096x128256-bf16"}, "case"),
    ],
)
def test_what_cannot_be_analysed_for_is_refused_by_the_real_examiner(
    tool: str, arguments: dict[str, str], field: str
) -> None:
    bench = Workbench(language="triton")
    bench.write("1.0")
    bench.loop.examiner = LocalExaminer()
    assert bench.refused(tool, candidate=1, **arguments)["field"] == field


def test_cpp_is_not_simulated() -> None:
    bench = Workbench()
    bench.write("1.0")
    error = bench.refused("simulate", candidate=1)
    assert (error["field"], error["remedy"]) == ("candidate", "Judge it with check instead.")


def test_many_findings_of_one_kind_are_told_once_with_their_lines() -> None:
    bench = Workbench(examiner=FakeExaminer(review(*[SPILL] * 9)), language="triton")
    bench.write("1.0")
    answer = bench.call("analyze", candidate=1)
    assert answer.text.count("register_spill") == 1
    assert "and 8 more of this kind, lines 2" in answer.text
    assert answer.details.count("register_spill") == 9


def test_a_real_compiler_names_the_line_of_an_error() -> None:
    bench = Workbench()
    bench.call("write_candidate", source="int x;\nint y\nint z;\n", idea="Broken.")
    answer = bench.call("compile_candidate", candidate=1).text
    assert "c1 does not compile: candidate.cpp:3:1: error: " in answer
    assert ">    3 | int z;" in answer
    bench.call("write_candidate", source="int x;\n", idea="Whole.")
    assert bench.call("compile_candidate", candidate=2).text == "c2 compiles."


def test_a_python_candidate_compiles_when_it_parses_and_defines_run() -> None:
    bench = Workbench(language="triton")
    bench.call("write_candidate", source="def run(x):\n    return x\n", idea="Whole.")
    bench.call("write_candidate", source="def run(x):\nreturn x\n", idea="Broken.")
    assert "analyze compiles them here" in bench.call("compile_candidate", candidate=1).text
    assert ">    2 | return x" in bench.call("compile_candidate", candidate=2).text


def test_lines_are_counted_as_compilers_count_them() -> None:
    assert ">    2 | b" in sources.excerpt("a\x0c\u2028\nb\n", 2)
    assert sources.excerpt("a\n", 2) == ""
    assert sources.blamed_lines(
        "c.cpp:9:1\ncandidate.cpp:4:2: warning: w\ncandidate.cpp:5:1: error"
    ) == (5,)


def test_a_summary_that_does_not_fit_says_how_much_is_left_out() -> None:
    assert (
        text.fitted(["a" * 10, "b" * 10, "c" * 10], 22)
        == f"{'a' * 10}\n{'b' * 10}\n… 1 more in the details"
    )
    assert text.tail("one\ntwo\nthree\n", 7) == "… (7 characters before)\nthree\n"
    with pytest.raises(SpecError):
        text.page("a\n", 2, 0)
