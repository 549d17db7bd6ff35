"""Tools that have a candidate judged and timed: what is asked, told, and not repeated."""

from __future__ import annotations

import pytest

from runner.events import RunStatus
from runner.loop import CUT_SHORT
from runner.results import CaseResult, Evaluation, IntegrityCheck, Verdict
from tests.runner.fakes import make_evaluation, stop_by
from tests.runner.workbench import CancelledEvaluator, Workbench

CASE = "2048x2048-fp32"


@pytest.fixture
def bench() -> Workbench:
    made = Workbench()
    made.write("1.2", "1.5", "crashed")
    return made


def scopes(bench: Workbench) -> list[tuple[tuple[str, ...], bool]]:
    """The cases, and whether to time, of each evaluation that was asked for."""
    return [(spec.cases, spec.timed) for spec in bench.evaluator.specs]


def test_a_check_asks_for_no_timing_and_a_benchmark_of_one_case_for_that_alone(
    bench: Workbench,
) -> None:
    bench.call("check", candidate=1)
    bench.call("benchmark", candidate=1, case=CASE)
    bench.call("benchmark", candidate=1)
    assert scopes(bench) == [((), False), ((CASE,), True), ((), True)]
    assert bench.loop.state.evaluations_used == 3


@pytest.mark.parametrize(
    ("tool", "more"), [("check", {}), ("benchmark", {}), ("benchmark", {"case": CASE})]
)
def test_a_second_call_measures_nothing_and_says_so(
    tool: str, more: dict[str, str], bench: Workbench
) -> None:
    first = bench.call(tool, candidate=1, **more).text
    second = bench.call(tool, candidate=1, **more).text
    assert len(bench.evaluator.specs) == 1
    assert second.startswith("Known already; nothing was measured again.")
    assert "Known already" not in first
    assert bench.events("evaluation") == 1


def test_what_a_whole_benchmark_has_shown_is_not_checked_or_measured_again(
    bench: Workbench,
) -> None:
    bench.call("benchmark", candidate=1)
    assert "Its benchmark checked it" in bench.call("check", candidate=1).text
    case = bench.call("benchmark", candidate=1, case=CASE).text
    assert f"Its whole benchmark covers {CASE}" in case
    assert len(bench.evaluator.specs) == 1


def test_a_benchmark_tells_speedup_interval_outcome_times_roofline_and_rank(
    bench: Workbench,
) -> None:
    text = bench.call("benchmark", candidate=1).text
    for part in (
        "c1: passed, 1.20× over torch (95% 1.19–1.21)",
        "- 4096x2048-fp32: 1.20× over torch (95% 1.19–1.21), faster; 833 µs against 1.00 ms",
        "share of the roofline not known",
        "It is the best candidate so far.",
        "1 of 24 evaluations used",
    ):
        assert part in text
    assert "Rank 2 of 2" not in text
    bench.call("benchmark", candidate=2)
    assert "It is the best candidate so far." in bench.call("benchmark", candidate=2).text
    assert "Rank 2 of 2; best is c2: 1.50×" in bench.call("benchmark", candidate=1).text


def test_one_case_does_not_rank_and_stands_beside_the_best_s(bench: Workbench) -> None:
    bench.call("benchmark", candidate=2)
    text = bench.call("benchmark", candidate=1, case=CASE).text
    assert f"1.20× over torch (95% 1.19–1.21) on {CASE}" in text
    assert "One case does not rank." in text
    assert bench.loop.state.best == 2


def test_the_share_of_the_roof_is_that_of_the_measured_bandwidth() -> None:
    def judge(source: str) -> Evaluation:
        found = make_evaluation(2.0)
        case = found.cases[0]
        assert case.timing is not None
        moved = round(2e10 * case.timing.median_us * 1e-6)  # 20 GB/s under a roof of 40
        known = CaseResult(CASE, Verdict.passed, flops=moved, bytes_moved=moved, timing=case.timing)
        return Evaluation(**{**vars(found), "cases": (known,)})

    bench = Workbench(judge=judge)
    bench.write("1.0")
    text = bench.call("benchmark", candidate=1).text
    assert "20.0 GB/s; 50% of DRAM copy (measured) reached" in text
    assert "50% of DRAM copy (measured)" in bench.call("profile", candidate=1).text


def test_a_failure_tells_verdict_reason_and_the_end_of_what_was_printed() -> None:
    output = "".join(f"line {number}\n" for number in range(2_000))

    def judge(source: str) -> Evaluation:
        return make_evaluation(None, Verdict.crashed, reason="killed by SIGSEGV", output=output)

    bench = Workbench(judge=judge)
    bench.write("1.0")
    answer = bench.call("benchmark", candidate=1)
    assert "c1: crashed" in answer.text
    assert "- 4096x2048-fp32: crashed: killed by SIGSEGV" in answer.text
    assert "line 1999" in answer.text
    assert "line 1500" not in answer.text
    assert answer.details.startswith("line 0\n")
    call = answer.text.rpartition("call='")[2].rstrip("')]")
    assert bench.call("read_details", call=call).text.startswith("line 0\nline 1\n")
    tail = bench.call("read_details", call=call, first_line=1_999).text
    assert tail == "line 1998\nline 1999\n[lines 1999–2000 of 2000]"


def test_cases_that_do_not_fit_the_summary_are_in_the_details() -> None:
    def judge(source: str) -> Evaluation:
        wrong = tuple(
            CaseResult(f"case {number}", Verdict.wrong_values, f"{number} " + "x" * 250)
            for number in range(20)
        )
        found = make_evaluation(None, Verdict.wrong_values, reason="x")
        return Evaluation(**{**vars(found), "cases": wrong})

    bench = Workbench(judge=judge)
    bench.write("1.0")
    answer = bench.call("check", candidate=1)
    assert "more in the details" in answer.text
    assert "- case 19: wrong_values" not in answer.text
    assert "- case 19: wrong_values: 19 xxx" in answer.details


def test_a_compile_error_is_shown_with_the_line_it_names() -> None:
    def judge(source: str) -> Evaluation:
        reason = "candidate.cpp:2:5: error: expected ';'"
        found = make_evaluation(None, Verdict.compile_error, reason=reason)
        return Evaluation(**{**vars(found), "cases": (), "compile_output": reason})

    bench = Workbench(judge=judge)
    bench.write("1.0")
    text = bench.call("check", candidate=1).text
    assert "c1: compile_error: candidate.cpp:2:5: error: expected ';'" in text
    assert ">    2 | int x;" in text


def test_integrity_checks_that_failed_are_told_and_those_that_passed_are_not() -> None:
    checks = (
        IntegrityCheck("two_clocks", False, "the parent's clock saw 900 µs more"),
        IntegrityCheck.not_judged("physics", "the ceilings are not measured"),
        IntegrityCheck("source_hash", True, "unchanged"),
    )

    def judge(source: str) -> Evaluation:
        return Evaluation(**{**vars(make_evaluation(1.2)), "integrity": checks})

    bench = Workbench(judge=judge)
    bench.write("1.0")
    text = bench.call("benchmark", candidate=1).text
    assert "Integrity, Two clocks agree: failed: the parent's clock saw 900 µs more" in text
    assert "Integrity, Physically possible: not judged: the ceilings" in text
    assert "Source is what ran" not in text


def test_a_fault_of_the_harness_is_called_one() -> None:
    bench = Workbench(judge=lambda source: make_evaluation(None, Verdict.harness_error, reason="x"))
    bench.write("1.0")
    assert "a fault of the harness, not of the kernel" in bench.call("check", candidate=1).text


def test_control_characters_of_a_program_do_not_reach_the_agent() -> None:
    def judge(source: str) -> Evaluation:
        return make_evaluation(None, Verdict.crashed, reason="\x1b[2J died", output="\x1b[31mred\n")

    bench = Workbench(judge=judge)
    bench.write("1.0")
    answer = bench.call("check", candidate=1)
    assert "\x1b" not in answer.text + answer.details


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("4096x4096-fp32", "this run has no case"),
        ("8192x16384-bf16", "this run has no case"),
        ("odd-1023x777-fp32", "is checked, not timed"),
    ],
)
def test_a_case_that_this_run_does_not_time_is_refused_with_those_it_times(
    case: str, said: str, bench: Workbench
) -> None:
    error = bench.refused("benchmark", candidate=1, case=case)
    assert error["field"] == "case"
    assert said in error["problem"]
    assert CASE in error["remedy"]
    assert bench.evaluator.specs == []


def test_a_stop_while_measuring_cuts_the_call_short() -> None:
    bench = Workbench(control=stop_by("ada"))
    bench.write("1.0")
    bench.evaluator = CancelledEvaluator()
    bench.restart()
    for tool in ("check", "benchmark"):
        work_answer = bench.raw_answer(tool, candidate=1)
        assert work_answer == CUT_SHORT
    assert bench.loop.state.status is RunStatus.running
    assert bench.events("evaluation") == 0


def test_a_profile_says_why_there_is_none_and_is_logged_once(bench: Workbench) -> None:
    text = bench.call("profile", candidate=1).text
    assert "no profile: candidates on the host may not read performance counters" in text
    bench.call("profile", candidate=1)
    assert bench.events("profile") == 1
    assert not bench.loop.state.profiles[1].available
    on_gpu = Workbench(device="cuda:0", case_set="gpu", language="triton")
    on_gpu.write("1.0")
    assert "no profiler for CUDA devices" in on_gpu.call("profile", candidate=1).text
