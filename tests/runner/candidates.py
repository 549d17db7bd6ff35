"""Small candidates for the softmax problem, right and wrong, in both languages."""

from __future__ import annotations

from runner.evaluate import evaluate
from runner.results import CheckStatus, Evaluation
from runner.spec import EvaluationSpec, Limits

HEADER = """
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <vector>
"""
PLAIN = """
static void rows(const float *x, float *y, int64_t M, int64_t N) {
#pragma omp parallel for
    for (int64_t i = 0; i < M; ++i) {
        float largest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < N; ++j) largest = std::fmax(largest, x[i * N + j]);
        for (int64_t j = 0; j < N; ++j) sum += y[i * N + j] = std::exp(x[i * N + j] - largest);
        for (int64_t j = 0; j < N; ++j) y[i * N + j] /= sum;
    }
}
"""
PYTHON = """
import torch

def run(x):
    return torch.softmax(x, dim=1)
"""


def cpp(body: str = "rows(x, y, M, N);", before: str = "") -> str:
    """A C++ softmax: `body` is what the exported function does, `before` stands above it."""
    signature = 'extern "C" void softmax_fp32(const float *x, float *y, int64_t M, int64_t N)'
    return f"{HEADER}{PLAIN}{before}\n{signature} {{\n    {body}\n}}\n"


def judge(
    source: str,
    language: str = "cpp",
    *,
    case_set: str = "host-quick",
    pairs: int = 10,
    limits: Limits | None = None,
) -> Evaluation:
    """Evaluate on the host with few pairs: these tests are about verdicts, not about speed."""
    return evaluate(
        EvaluationSpec(
            problem="softmax",
            source=source,
            language=language,
            case_set=case_set,
            pairs=pairs,
            limits=limits or Limits(deadline_s=60),
        )
    )


def failed_checks(evaluation: Evaluation) -> list[str]:
    """All but the machine's own business: whoever else works on this host while it is timed."""
    failed = [check for check in evaluation.integrity if check.status is CheckStatus.failed]
    return [check.check for check in failed if check.check != "device_alone"]
