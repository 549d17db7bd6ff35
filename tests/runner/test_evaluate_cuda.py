"""The same protocol on a GPU; skipped where there is none."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from kernels.catalog import load_problem
from runner.evaluate import evaluate
from runner.evaluate.ceilings import ceilings
from runner.evaluate.devices import available_devices
from runner.results import CheckStatus, Evaluation, IntegrityCheck, Verdict
from runner.spec import EvaluationSpec, Limits

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif("cuda:0" not in available_devices(), reason="no NVIDIA GPU on this machine"),
]
TORCH = "import torch\ndef run(x):\n    return torch.softmax(x, dim=1)\n"


def on_gpu(source: str, *, pairs: int = 10, deadline_s: float = 120) -> EvaluationSpec:
    sets = load_problem("softmax").case_sets("cuda")
    case_set = "gpu-quick" if "gpu-quick" in sets else sets[0]
    limits = Limits(deadline_s=deadline_s)
    return EvaluationSpec("softmax", source, "triton", "cuda:0", case_set, pairs, limits)


def test_torch_on_a_gpu_passes_and_is_timed() -> None:
    evaluation = evaluate(on_gpu(TORCH))
    assert (evaluation.verdict, evaluation.reason) == (Verdict.passed, "")
    assert evaluation.speedup is not None
    assert evaluation.device.kind == "cuda"
    assert {"driver", "temperature", "temperature after", "SM clock after"} <= set(
        evaluation.device.details
    )


def test_every_triton_zoo_kernel_of_softmax_passes() -> None:
    for kernel in load_problem("softmax").kernels("triton"):
        evaluation = evaluate(on_gpu(kernel.source))
        assert (evaluation.verdict, evaluation.reason) == (Verdict.passed, "")


@pytest.mark.parametrize(
    ("body", "verdict"),
    [
        ("return torch.zeros_like(x)", Verdict.wrong_values),
        ("return torch.empty_like(x)", Verdict.wrong_values),
        ("return torch.softmax(x, 1).cpu()", Verdict.wrong_dtype),
        ("y = torch.softmax(x, 1); x.zero_(); return y", Verdict.mutated_input),
        ("return torch.empty(1 << 45, device=x.device)", Verdict.out_of_memory),
        ("raise ValueError('no good')", Verdict.crashed),
    ],
)
def test_a_faulty_gpu_candidate_gets_its_verdict(body: str, verdict: Verdict) -> None:
    evaluation = evaluate(on_gpu(f"import torch\ndef run(x):\n    {body}\n"))
    assert evaluation.verdict is verdict, evaluation.reason


def test_a_kernel_that_never_ends_times_out_and_the_device_serves_the_next() -> None:
    spin = "import torch\ndef run(x):\n    while True: torch.cuda._sleep(1 << 30)\n"
    assert evaluate(on_gpu(spin, deadline_s=5)).verdict is Verdict.timeout
    assert evaluate(on_gpu(TORCH)).verdict is Verdict.passed


def test_a_gpu_has_measured_roofs() -> None:
    measured = {roof.name: roof.value for roof in ceilings("cuda:0") if roof.source == "measured"}
    assert {"HBM copy", "L2 copy", "BF16 tensor", "TF32 tensor", "FP32 FMA"} <= set(measured)
    assert all(value is not None and value > 1e11 for value in measured.values())


def foreign(seconds: float) -> subprocess.Popen[str]:
    """A process that is none of ours and holds memory of the GPU."""
    code = (
        "import time, torch; x = torch.ones(1 << 20, device='cuda'); print('up', flush=True);"
        f"time.sleep({seconds})"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def alone(evaluation: Evaluation) -> IntegrityCheck:
    return next(check for check in evaluation.integrity if check.check == "device_alone")


def test_nothing_is_measured_while_a_foreign_process_uses_the_gpu() -> None:
    process = foreign(600)
    try:
        evaluation = evaluate(on_gpu(TORCH))
    finally:
        process.kill()
        process.wait()
    assert evaluation.verdict is Verdict.unmeasured
    assert f"process {process.pid}" in evaluation.reason
    assert alone(evaluation).status is CheckStatus.failed


def test_what_was_measured_beside_a_foreign_process_is_repeated_whole() -> None:
    evaluate(on_gpu(TORCH))  # the processes are there, so that the next begins at once
    process = foreign(4)
    evaluation = evaluate(on_gpu(TORCH))
    process.wait()
    assert (evaluation.verdict, evaluation.reason) == (Verdict.passed, "")
    assert alone(evaluation).passed
    assert "discarded and repeated whole" in alone(evaluation).detail


def test_launch_time_is_reported_apart_from_device_time() -> None:
    slow = (
        "import time, torch\ndef run(x):\n    time.sleep(0.001)\n    return torch.softmax(x, 1)\n"
    )
    (case,) = evaluate(on_gpu(slow)).scored
    assert case.timing is not None
    assert case.timing.launch_us is not None
    assert case.timing.launch_us > 1000
    assert case.timing.median_us < 500


def test_a_check_on_a_gpu_passes_without_a_baseline_and_times_nothing() -> None:
    evaluation = evaluate(replace(on_gpu(TORCH), timed=False))
    assert (evaluation.verdict, evaluation.reason) == (Verdict.passed, "")
    assert all(case.timing is None for case in evaluation.cases)
    made = {check.check for check in evaluation.integrity}
    assert not made & {"timed_output_verified", "two_clocks", "physics", "device_steady"}


def test_one_case_on_a_gpu_is_judged_and_timed_alone() -> None:
    name = next(case.name for case in load_problem("softmax").cases_in("gpu-quick") if case.scored)
    evaluation = evaluate(replace(on_gpu(TORCH), cases=(name,)))
    assert [case.case for case in evaluation.cases] == [name]
    assert evaluation.speedup is not None
