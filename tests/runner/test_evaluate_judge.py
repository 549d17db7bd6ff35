"""Judging a tensor against its oracle, drawing inputs, and turning pairs of times into a Timing."""

from __future__ import annotations

import math

import pytest
import torch

from kernels.catalog import DRAWS, Tolerance
from runner.evaluate import statistics
from runner.evaluate.draws import draw
from runner.evaluate.judge import Judgement, Oracle
from runner.evaluate.tensors import poisoned, same_bits
from runner.results import Outcome, Verdict

TOLERANCE = Tolerance(norm=1e-3, element=1e-2)


def judged(output: torch.Tensor, reference: torch.Tensor) -> Judgement:
    return Oracle("y", reference.double(), output.dtype).judge(output, TOLERANCE)


def test_errors_are_those_of_the_tolerance() -> None:
    reference = torch.tensor([3.0, 4.0], dtype=torch.float64)
    found = judged(torch.tensor([3.0, 4.004]), reference)
    rms = 5 / math.sqrt(2)
    assert found.verdict is Verdict.passed
    assert found.norm_error == pytest.approx(0.004 / 5, rel=1e-3)
    assert found.max_rel_error == pytest.approx(0.004 / (4 + rms), rel=1e-3)


def test_one_wild_element_among_many_fails_by_place_and_size() -> None:
    reference = torch.ones(100, 100)
    output = reference.clone()
    output[7, 3] = 2.0
    found = judged(output, reference)
    assert found.verdict is Verdict.wrong_values
    assert "y[7, 3] (2, expected 1), allowed 0.01" in found.reason


def test_many_small_errors_fail_by_the_norm() -> None:
    reference = torch.ones(1000)
    found = judged(reference * 1.005, reference)
    assert found.verdict is Verdict.wrong_values
    assert found.reason.startswith("norm error 0.005")


def test_an_output_that_was_never_written_is_told_apart_from_nan() -> None:
    reference = torch.ones(10)
    output = poisoned((10,), "fp32", torch.device("cpu"))
    assert judged(output, reference).reason == "10 of 10 elements of y were never written"
    output = reference.clone()
    output[4] = math.nan
    found = judged(output, reference)
    assert (found.verdict, found.reason) == (Verdict.non_finite, "y[4] is nan, expected 1")


def test_a_legal_infinity_must_be_where_the_reference_has_it() -> None:
    reference = torch.tensor([1.0, -math.inf, 2.0])
    assert judged(reference.clone(), reference).verdict is Verdict.passed
    shifted = torch.tensor([-math.inf, 1.0, 2.0])
    assert judged(shifted, reference).verdict is Verdict.non_finite
    assert judged(torch.tensor([1.0, math.inf, 2.0]), reference).verdict is Verdict.non_finite


def test_values_beside_a_legal_nan_are_still_measured() -> None:
    reference = torch.tensor([1.0, math.nan, 2.0])
    assert judged(reference.clone(), reference).verdict is Verdict.passed
    wrong = torch.tensor([1.0, math.nan, 3.0])
    assert judged(wrong, reference).verdict is Verdict.wrong_values


def test_what_overflows_the_dtype_of_the_output_counts_as_infinite() -> None:
    reference = torch.tensor([1e300, 1.0], dtype=torch.float64)
    assert judged(torch.tensor([math.inf, 1.0]), reference).verdict is Verdict.passed
    assert judged(torch.tensor([1e38, 1.0]), reference).verdict is Verdict.non_finite


def test_an_all_zero_reference_wants_exact_zeros() -> None:
    reference = torch.zeros(5)
    assert judged(torch.zeros(5), reference).verdict is Verdict.passed
    assert judged(torch.full((5,), 1e-30), reference).verdict is Verdict.wrong_values


def test_bits_are_compared_and_not_values() -> None:
    assert same_bits(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_every_draw_of_the_catalog_has_shape_and_dtype(name: str, dtype: str) -> None:
    values = draw(name, (5, 7), dtype, generator())
    assert values.shape == (5, 7)
    assert values.dtype is {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]


def test_two_seeds_draw_different_values() -> None:
    first = draw("normal", (100,), "fp32", generator(1))
    assert not torch.equal(first, draw("normal", (100,), "fp32", generator(2)))


def test_wide_values_span_twelve_decimal_orders_with_both_signs() -> None:
    values = draw("wide", (100_000,), "fp32", generator())
    assert values.abs().min() < 2**-19
    assert 2**19 < values.abs().max() <= 2**20
    assert 0.45 < float((values < 0).float().mean()) < 0.55


def test_tiny_values_are_mostly_subnormal_and_not_zero() -> None:
    values = draw("tiny", (10_000,), "fp32", generator())
    normal = torch.finfo(torch.float32).smallest_normal
    share = float((values.abs() < normal).float().mean())
    assert 0.6 < share < 0.75
    assert float((values == 0).float().mean()) < 0.001


def test_equal_rows_hold_one_value_each() -> None:
    values = draw("equal", (4, 6), "fp32", generator())
    assert torch.equal(values, values[:, :1].expand(4, 6))
    assert len(set(values[:, 0].tolist())) == 4


def test_masked_rows_are_open_somewhere_and_only_every_fourth_has_holes() -> None:
    values = draw("masked", (400, 50), "fp32", generator())
    finite = torch.isfinite(values)
    assert bool(finite.any(dim=1).all())
    assert bool((values[~finite] == -math.inf).all())
    for row in range(400):
        open_at = finite[row].nonzero().flatten()
        span = int(open_at[-1] - open_at[0]) + 1
        assert row % 4 == 3 or span == len(open_at)
    holes = [int(finite[row].sum()) for row in range(3, 400, 4)]
    assert sum(holes) > 0


def test_a_clear_difference_is_faster_or_slower() -> None:
    base = [100.0 + i % 5 for i in range(30)]
    quick = statistics.timing("torch", base, [value / 2 for value in base])
    assert quick.outcome is Outcome.faster
    assert quick.speedup == pytest.approx(2.0)
    assert quick.ci95[0] <= quick.speedup <= quick.ci95[1]
    slow = statistics.timing("torch", base, [value * 2 for value in base])
    assert slow.outcome is Outcome.slower


def test_a_kernel_against_itself_is_indistinguishable() -> None:
    noise = torch.randn(2, 40, generator=generator()).mul(3).add(100).tolist()
    found = statistics.timing("torch", noise[0], noise[1])
    assert found.outcome is Outcome.indistinguishable
    assert found.ci95[0] < 1 < found.ci95[1]


def test_the_interval_of_given_samples_is_reproducible() -> None:
    base, mine = [10.0, 11.0, 12.0, 13.0] * 5, [9.0, 12.0, 10.0, 11.0] * 5
    assert statistics.timing("torch", base, mine) == statistics.timing("torch", base, mine)
