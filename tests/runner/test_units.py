"""How numbers are written for people."""

from __future__ import annotations

import pytest

from runner import units


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0.845, "845 ns"),
        (12.4, "12.4 µs"),
        (1280.0, "1.28 ms"),
        (2_500_000.0, "2.50 s"),
        (0.9996, "1.00 µs"),
        (999.6, "1.00 ms"),
        (99.96, "100 µs"),
        (9.996, "10.0 µs"),
        (0.0001, "0.1 ns"),
        (0.0, "0 ns"),
        (None, "–"),
    ],
)
def test_durations_have_three_significant_digits_in_the_unit_that_fits(
    us: float | None, text: str
) -> None:
    assert units.duration_us(us) == text


def test_rates_are_decimal_and_name_their_dtype() -> None:
    assert units.rate_bytes(41.26e9) == "41.3 GB/s"
    assert units.rate_flops(1.2345e12, "fp32") == "1.23 TFLOP/s fp32"
    assert units.rate_flops(999.9e6) == "1.00 GFLOP/s"
    assert (units.rate_bytes(None), units.rate_flops(None, "bf16")) == ("–", "–")


def test_capacities_are_binary_without_needless_zeros() -> None:
    sizes = (17, 1536, 64 * 2**20, 141 * 2**30, 2**20 - 1, None)
    written = ["17 B", "1.5 KiB", "64 MiB", "141 GiB", "1 MiB", "–"]
    assert [units.bytes_iec(size) for size in sizes] == written


def test_a_speedup_has_two_decimals_under_ten_and_three_digits_above() -> None:
    ratios = (2.384, 0.914, 9.996, 12.44, 123.6, None)
    written = ["2.38×", "0.91×", "10.0×", "12.4×", "124×", "–"]
    assert [units.speedup(ratio) for ratio in ratios] == written
    assert units.interval((1.601, 1.6449)) == "1.60–1.64"
    assert units.interval(None) == "–"


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0.84, "0.8 s"),
        (2.0, "2 s"),
        (9.96, "10 s"),
        (42.3, "42 s"),
        (59.6, "1 min"),
        (100, "1 min 40 s"),
        (599.7, "10 min"),
        (1860, "31 min"),
        (7500, "2 h 5 min"),
        (86_400, "1 d"),
        (100_800, "1 d 4 h"),
        (None, "–"),
    ],
)
def test_spans_are_said_as_a_person_waits(span: float | None, text: str) -> None:
    assert units.seconds(span) == text


def test_a_launch_stands_beside_the_device_time_and_says_when_it_takes_longer() -> None:
    assert units.launch(140.0, 9.8) == "device 140 µs · launch 9.80 µs"
    assert units.launch(4.2, 9.8) == "device 4.20 µs · launch 9.80 µs; launch-bound"
    assert units.launch(4.2, None) == ""


def test_dollars_have_cents_and_smaller_sums_two_digits() -> None:
    sums = (0, 0.0, 3e-5, 0.00421, 0.0604, 0.0996, 2.143, 12.5, 1250.4, None)
    written = ["$0.00", "$0.00", "<$0.0001", "$0.0042", "$0.06", "$0.10", "$2.14", "$12.50"]
    written += ["$1,250", "–"]
    assert [units.dollars(amount) for amount in sums] == written


def test_tokens_are_written_for_their_size() -> None:
    counts = (0, 812, 999, 1000, 12_430, 999_700, 1_284_000, None)
    written = ["0", "812", "999", "1.00k", "12.4k", "1.00M", "1.28M", "–"]
    assert [units.tokens(count) for count in counts] == written
