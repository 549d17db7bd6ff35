"""Evaluations of a narrower scope: a check without timing, and single cases."""

from __future__ import annotations

from typing import Any

import pytest

from runner.evaluate import Request, evaluate, kinds
from runner.results import CheckStatus, Evaluation, Verdict
from runner.spec import EvaluationSpec, Limits, SpecError
from runner.wire import from_json, to_json
from tests.runner.candidates import cpp

TIMED_CHECKS = {"timed_output_verified", "two_clocks", "physics", "idle_between_calls"}
TRITON = """
import torch, triton
import triton.language as tl

@triton.jit
def rows(x, y, N, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    values = tl.load(x + row * N + columns, mask=columns < N, other=float("-inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(y + row * N + columns, powers / tl.sum(powers, axis=0), mask=columns < N)

def run(x):
    y = torch.empty_like(x)
    rows[(x.shape[0],)](x, y, x.shape[1], triton.next_power_of_2(x.shape[1]))
    return y
"""


def judge(source: str, **more: Any) -> tuple[Evaluation, list[str]]:
    """An evaluation on the quick cases of the host, and the phases that it went through."""
    spec = EvaluationSpec(
        "softmax",
        source,
        more.pop("language", "cpp"),
        case_set="host-quick",
        pairs=10,
        limits=Limits(deadline_s=60),
        **more,
    )
    phases: list[str] = []
    return evaluate(spec, progress=phases.append), phases


@pytest.fixture(scope="module")
def checked() -> tuple[Evaluation, list[str]]:
    return judge(cpp(), timed=False)


def test_a_check_passes_all_cases_and_times_none(checked: tuple[Evaluation, list[str]]) -> None:
    evaluation, phases = checked
    assert (evaluation.verdict, evaluation.reason) == (Verdict.passed, "")
    assert {case.case for case in evaluation.cases} == {"512x2048-fp32", "odd-1023x777-fp32"}
    assert all(case.norm_error is not None and case.timing is None for case in evaluation.cases)
    assert (evaluation.speedup, evaluation.floor) == (None, None)
    assert not [phase for phase in phases if phase.startswith("timing")]
    assert evaluation.timer.startswith("nothing was timed")


def test_a_check_claims_no_integrity_check_that_only_timing_makes(
    checked: tuple[Evaluation, list[str]],
) -> None:
    made = {check.check for check in checked[0].integrity}
    assert not made & TIMED_CHECKS
    assert {"fresh_inputs", "outputs_poisoned", "repeat_agrees", "source_hash"} <= made
    assert all(check.status is CheckStatus.passed for check in checked[0].integrity)


def test_a_check_survives_the_wire(checked: tuple[Evaluation, list[str]]) -> None:
    assert from_json(Evaluation, to_json(checked[0])) == checked[0]


def test_only_what_is_timed_has_a_process_for_the_baseline() -> None:
    roles = {}
    for timed in (True, False):
        spec = EvaluationSpec("softmax", cpp(), "cpp", timed=timed)
        request = Request.of(spec, None, lambda phase: None)
        roles[timed] = [kind.role for kind in kinds(request)]
    assert roles == {
        True: ["referee", "baseline", "candidate"],
        False: ["referee", "candidate"],
    }


def test_a_wrong_kernel_fails_its_check_with_the_verdict_of_an_evaluation() -> None:
    evaluation, _ = judge(cpp("rows(x, y, M / 2, N);"), timed=False)
    assert evaluation.verdict is Verdict.wrong_values
    assert "were never written" in evaluation.reason


def test_one_case_is_judged_and_timed_alone() -> None:
    evaluation, phases = judge(cpp(), cases=("512x2048-fp32",))
    assert evaluation.verdict is Verdict.passed
    assert [case.case for case in evaluation.cases] == ["512x2048-fp32"]
    assert evaluation.speedup is not None
    assert {check.check for check in evaluation.integrity} >= {
        "timed_output_verified",
        "two_clocks",
    }
    assert not [phase for phase in phases if "odd" in phase]


def test_a_fault_of_another_case_does_not_concern_the_case_asked_for() -> None:
    wrong_on_odd = cpp("if (N % 2) return; rows(x, y, M, N);")
    alone, _ = judge(wrong_on_odd, cases=("512x2048-fp32",), timed=False)
    whole, _ = judge(wrong_on_odd, timed=False)
    assert (alone.verdict, whole.verdict) == (Verdict.passed, Verdict.wrong_values)


def test_a_case_that_is_only_checked_passes_without_a_speedup() -> None:
    evaluation, _ = judge(cpp(), cases=("odd-1023x777-fp32",))
    assert (evaluation.verdict, evaluation.speedup) == (Verdict.passed, None)


@pytest.mark.parametrize("name", ["no-such-case", "2048x2048-fp32", "8192x16384-bf16"])
def test_a_case_outside_the_set_is_refused_with_those_inside(name: str) -> None:
    with pytest.raises(SpecError) as refused:
        judge(cpp(), cases=(name,))
    assert refused.value.field == "cases"
    assert refused.value.remedy == "Use some of: 512x2048-fp32, odd-1023x777-fp32."


def test_a_triton_kernel_without_a_gpu_passes_the_check_of_the_case_that_was_interpreted() -> None:
    evaluation, _ = judge(TRITON, language="triton", cases=("odd-1023x777-fp32",), timed=False)
    assert evaluation.verdict is Verdict.passed


def test_a_check_says_which_cases_are_too_large_for_the_interpreter() -> None:
    evaluation, _ = judge(TRITON, language="triton", timed=False)
    assert evaluation.verdict is Verdict.unmeasured
    assert evaluation.reason == (
        "not checked: too large for Triton's interpreter, which checked odd-1023x777-fp32"
    )
