"""Every way a kernel can fail gets its own verdict, and an honest one passes."""

from __future__ import annotations

import pytest

from runner.evaluate import evaluate, processor
from runner.results import Evaluation, Verdict, flat_json
from runner.spec import EvaluationSpec, Limits, SpecError
from runner.wire import from_json, to_json
from tests.runner.candidates import PYTHON, cpp, failed_checks, judge


@pytest.fixture(scope="module")
def honest() -> Evaluation:
    return judge(cpp(), pairs=12)


def test_an_honest_cpp_kernel_passes_and_is_timed(honest: Evaluation) -> None:
    assert (honest.verdict, honest.reason) == (Verdict.passed, "")
    assert [case.verdict for case in honest.cases] == [Verdict.passed] * len(honest.cases)
    scored = honest.scored[0]
    assert scored.timing is not None
    assert scored.timing.baseline == "torch"
    assert scored.timing.samples == 12
    assert scored.max_rel_error is not None
    assert honest.speedup is not None
    assert honest.speedup == pytest.approx(scored.timing.speedup)


def test_an_unscored_case_is_checked_and_not_timed(honest: Evaluation) -> None:
    unscored = [case for case in honest.cases if not case.scored]
    assert unscored
    assert all(case.timing is None and case.norm_error is not None for case in unscored)


def test_a_result_carries_its_evidence(honest: Evaluation) -> None:
    assert {check.check for check in honest.integrity} == {
        "fresh_inputs",
        "outputs_poisoned",
        "inputs_unchanged",
        "repeat_agrees",
        "timed_output_verified",
        "two_clocks",
        *(["idle_between_calls"] if processor.available() else []),
        "physics",
        "device_alone",
        "source_hash",
        "process_tree_clean",
        "output_capped",
    }
    assert failed_checks(honest) == []
    assert {"g++", "torch", "python", "kernel"} <= set(honest.versions)
    assert len(honest.source_sha256) == 64


def test_a_result_survives_the_wire(honest: Evaluation) -> None:
    assert from_json(Evaluation, to_json(honest)) == honest
    assert flat_json(honest)["cases"][-1]["median_us"] > 0


def test_an_honest_python_module_passes_and_is_timed() -> None:
    evaluation = judge(PYTHON, "triton")
    assert evaluation.verdict is Verdict.passed
    assert evaluation.speedup is not None


CPP_FAULTS = {
    "zeros": (cpp("std::memset(y, 0, M * N * 4);"), Verdict.wrong_values, "element error"),
    "nothing written": (cpp("(void)x;"), Verdict.wrong_values, "were never written"),
    "half written": (cpp("rows(x, y, M / 2, N);"), Verdict.wrong_values, "were never written"),
    "one NaN": (cpp("rows(x, y, M, N); y[5] = NAN;"), Verdict.non_finite, "y[0, 5] is nan"),
    "input zeroed": (
        cpp("rows(x, y, M, N); const_cast<float *>(x)[3] = 0;"),
        Verdict.mutated_input,
        "input x was changed",
    ),
    "one element past the end": (
        cpp("rows(x, y, M, N); y[M * N] = 1;"),
        Verdict.crashed,
        "wrote outside y",
    ),
    "far past the end": (cpp("y[M * N + 5000] = 1;"), Verdict.crashed, "SIGSEGV"),
    "before the start": (cpp("y[-1] = 1;"), Verdict.crashed, "SIGSEGV"),
    "abort": (cpp("std::abort();"), Verdict.crashed, "SIGABRT"),
    "exit in a call": (cpp("std::exit(3);"), Verdict.crashed, "exited with status 3"),
    "exit while loading": (
        cpp(before="struct A { A() { _exit(0); } }; static A a;"),
        Verdict.crashed,
        "while loading: exited with status 0",
    ),
    "too much memory": (
        cpp("std::vector<char> v(64LL << 30, 1); y[0] = v[7];"),
        Verdict.out_of_memory,
        "bad_alloc",
    ),
    "changes from call to call": (
        cpp("static int n = 0; rows(x, y, M, N); if (n++ == 2) y[7] += 0.5f;"),
        Verdict.wrong_values,
        "y[0, 7]",
    ),
    "answers remembered by address": (
        cpp(
            "static std::vector<const float *> seen; static int n = 0;"
            "for (auto p : seen) if (p == x && n > 6) return;"
            "seen.push_back(x); ++n; rows(x, y, M, N);"
        ),
        Verdict.wrong_values,
        "512x2048-fp32",
    ),
    "wrong symbol": (
        cpp().replace("softmax_fp32", "softmax_fp99"),
        Verdict.compile_error,
        'extern "C" void softmax_fp32(const float *x, float *y, int64_t M, int64_t N)',
    ),
    "does not compile": (cpp("nonsense;"), Verdict.compile_error, "candidate.cpp:"),
}


@pytest.mark.parametrize("fault", CPP_FAULTS)
def test_a_faulty_cpp_kernel_gets_its_verdict(fault: str) -> None:
    source, verdict, words = CPP_FAULTS[fault]
    evaluation = judge(source, limits=Limits(deadline_s=60, memory_bytes=4 << 30))
    assert (evaluation.verdict, words in evaluation.reason) == (verdict, True), evaluation.reason
    assert evaluation.speedup is None


PYTHON_FAULTS = {
    "scalar": ("def run(x): return x.sum()", Verdict.wrong_shape, "has shape []"),
    "nothing returned": ("def run(x): pass", Verdict.wrong_shape, "returned 0 values"),
    "two values": ("def run(x): return x, x", Verdict.wrong_shape, "returned 2 values"),
    "float64": (
        "def run(x): return torch.softmax(x, 1).double()",
        Verdict.wrong_dtype,
        "float64",
    ),
    "no tensor": ("def run(x): return [1]", Verdict.wrong_dtype, "y is int"),
    "subclass": (
        "class Lazy(torch.Tensor): pass\ndef run(x): return torch.softmax(x, 1).as_subclass(Lazy)",
        Verdict.wrong_dtype,
        "y is Lazy",
    ),
    "uninitialised": (
        "def run(x): return torch.empty_like(x)",
        Verdict.wrong_values,
        "odd-1023x777-fp32",
    ),
    "input zeroed": (
        "def run(x):\n    y = torch.softmax(x, 1)\n    x.zero_()\n    return y",
        Verdict.mutated_input,
        "input x",
    ),
    "remembered by address": (
        "seen = {}\n"
        "def run(x):\n"
        "    key = x.data_ptr()\n"
        "    if key not in seen: seen[key] = torch.softmax(x, 1)\n"
        "    return seen[key]",
        Verdict.wrong_values,
        "512x2048-fp32",
    ),
    "exception": (
        "def run(x):\n    raise ValueError('no good')",
        Verdict.crashed,
        "ValueError: no good (candidate.py:3 in run)",
    ),
    "exit while importing": ("import os\nos._exit(4)\nrun = 1", Verdict.crashed, "status 4"),
    "sys.exit while importing": ("raise SystemExit(4)\nrun = 1", Verdict.crashed, "while loading"),
    "missing module": (
        "import no_such_module\nrun = 1",
        Verdict.crashed,
        "No module named 'no_such_module'",
    ),
    "too much memory": (
        "def run(x): return torch.ones(1 << 36)",
        Verdict.out_of_memory,
        "can't allocate memory",
    ),
    "forged answer": (
        "import os\n"
        "for f in range(3, 30):\n"
        "    try: os.write(f, b'{\"ns\": 1}\\n')\n"
        "    except OSError: pass\n"
        "run = torch.nn.Softmax(1)",
        Verdict.tampered,
        "answer to no question",
    ),
    "clock set back": (
        "from runner.evaluate import clocks\n"
        "now = clocks._now_ns\n"
        "clocks._now_ns = lambda: now() // 100\n"
        "def run(x):\n"
        "    for _ in range(4): y = torch.softmax(x, 1)\n"
        "    return y",
        Verdict.timing_disputed,
        "hides",
    ),
}


@pytest.mark.parametrize("fault", PYTHON_FAULTS)
def test_a_faulty_python_module_gets_its_verdict(fault: str) -> None:
    source, verdict, words = PYTHON_FAULTS[fault]
    limits = Limits(deadline_s=60, memory_bytes=4 << 30)
    evaluation = judge(f"import torch\n{source}\n", "triton", limits=limits)
    assert (evaluation.verdict, words in evaluation.reason) == (verdict, True), evaluation.reason


def test_a_hanging_kernel_times_out_and_the_rest_is_not_run() -> None:
    source = cpp("for (volatile int forever = 1; forever;) {}")
    evaluation = judge(source, limits=Limits(deadline_s=1))
    assert evaluation.verdict is Verdict.timeout
    assert [case.verdict for case in evaluation.cases] == [Verdict.timeout, Verdict.unmeasured]


def test_a_flood_of_output_is_capped_noted_and_decides_nothing() -> None:
    spam = 'for (int i = 0; i < 50000; ++i) std::puts("spam spam spam"); std::fflush(stdout);'
    source = cpp(f"rows(x, y, M, N); static int n = 0; if (n++ < 3) {{ {spam} }}")
    evaluation = judge(source, limits=Limits(deadline_s=60, output_bytes=1000))
    assert evaluation.verdict is Verdict.passed
    assert len(evaluation.output) < 1200
    assert failed_checks(evaluation) == ["output_capped"]


def test_what_a_kernel_prints_before_it_dies_is_kept() -> None:
    evaluation = judge(cpp('std::fputs("last words\\n", stderr); std::abort();'))
    assert "last words" in evaluation.output


def test_one_failed_case_leaves_no_aggregate_and_no_timing() -> None:
    evaluation = judge(cpp("rows(x, y, M, N); if (N == 777) y[0] = 0.5f;"))
    verdicts = {case.case: case.verdict for case in evaluation.cases}
    assert verdicts == {
        "odd-1023x777-fp32": Verdict.wrong_values,
        "512x2048-fp32": Verdict.unmeasured,
    }
    assert evaluation.verdict is Verdict.wrong_values
    assert (evaluation.speedup, evaluation.ci95) == (None, None)


TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def softmax_row(x_ptr, y_ptr, N, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    offset = tl.program_id(0) * N + column
    x = tl.load(x_ptr + offset, mask=column < N, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + offset, e / tl.sum(e, axis=0), mask=column < N)

def run(x):
    y = torch.empty_like(x)
    softmax_row[(x.shape[0],)](x, y, x.shape[1], triton.next_power_of_2(x.shape[1]))
    return y
"""


def test_a_triton_kernel_on_the_host_is_checked_and_unmeasured() -> None:
    evaluation = judge(TRITON, "triton")
    verdicts = [case.verdict for case in evaluation.cases]
    assert verdicts == [Verdict.passed, Verdict.unmeasured]
    assert evaluation.verdict is Verdict.unmeasured
    assert "interpreter on odd-1023x777-fp32" in evaluation.reason
    assert evaluation.cases[0].norm_error is not None


def test_a_wrong_triton_kernel_on_the_host_is_found_wrong() -> None:
    evaluation = judge(TRITON.replace("e / tl.sum(e, axis=0)", "e"), "triton")
    assert evaluation.verdict is Verdict.wrong_values


def test_a_module_that_only_mentions_triton_is_timed() -> None:
    evaluation = judge(f"# no triton kernel needed here\n{PYTHON}", "triton")
    assert evaluation.verdict is Verdict.passed
    assert evaluation.speedup is not None


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"problem": "sofmax"}, "problem"),
        ({"language": "cuda"}, "language"),
        ({"case_set": "gpu"}, "case_set"),
        ({"device": "tpu"}, "device"),
        ({"device": "cuda:99", "language": "triton", "case_set": "gpu"}, "device"),
    ],
)
def test_a_request_that_cannot_be_met_names_field_and_remedy(
    change: dict[str, str], field: str
) -> None:
    request = {"problem": "softmax", "source": cpp(), "language": "cpp", "case_set": "host"}
    with pytest.raises(SpecError) as caught:
        evaluate(EvaluationSpec(**(request | change)))  # type: ignore[arg-type]
    assert caught.value.field == field
    assert caught.value.remedy


def test_a_missing_compiler_is_a_request_that_cannot_be_met(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SpecError) as caught:
        judge(cpp())
    assert caught.value.field == "language"
