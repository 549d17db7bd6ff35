"""What disputes the times of a case: clocks that hide time, work between calls, a slow baseline."""

from __future__ import annotations

import random

import pytest

from runner.evaluate.pairs import (
    PairTimes,
    Side,
    clock_dispute,
    flush_ratio,
    idle_dispute,
    slowed_dispute,
)

PAIRS = 30
CALL_US, ROUND_TRIP_US = 300.0, 200.0


def side(rng: random.Random, *, hidden_us: float = 0.0, busy: float = 0.0, spare: int = 0) -> Side:
    """Calls of a process that hides time; a busy machine adds 3 ms to a share of the round trips.

    `spare` says how many calls the liar is honest about.
    """
    found = Side()
    for call in range(PAIRS):
        hidden = hidden_us if call >= spare else 0.0
        noise = rng.uniform(0, 40) + (3000 if rng.random() < busy else 0)
        found.own_us.append(CALL_US)
        found.outside_us.append(CALL_US + ROUND_TRIP_US + hidden + noise)
    return found


@pytest.mark.parametrize("busy", [0.0, 0.5])
@pytest.mark.parametrize("seed", range(20))
def test_an_honest_clock_is_not_disputed_on_a_quiet_or_a_busy_machine(
    seed: int, busy: float
) -> None:
    rng = random.Random(seed)
    times = PairTimes(side(rng, busy=busy), side(rng, busy=busy))
    assert clock_dispute(times, "host") is None


@pytest.mark.parametrize("busy", [0.0, 0.5])
@pytest.mark.parametrize("spare", [0, 10])
@pytest.mark.parametrize("seed", range(20))
def test_a_clock_that_hides_a_call_is_disputed_even_if_it_spares_some(
    seed: int, spare: int, busy: float
) -> None:
    rng = random.Random(seed)
    lie = side(rng, hidden_us=CALL_US, busy=busy if spare == 0 else 0.0, spare=spare)
    times = PairTimes(side(rng, busy=busy if spare == 0 else 0.0), lie)
    words = clock_dispute(times, "host")
    assert words is not None
    assert "hides" in words


def test_a_gpu_is_given_more_slack_than_a_host() -> None:
    rng = random.Random(0)
    times = PairTimes(side(rng), side(rng, hidden_us=100.0))
    assert clock_dispute(times, "host") is not None
    assert clock_dispute(times, "cuda") is None


def test_work_between_calls_is_disputed_beyond_a_tenth_of_a_millisecond() -> None:
    rng = random.Random(0)
    times = PairTimes(side(rng), side(rng))
    assert idle_dispute(times) is None  # nobody could see it
    times.idle_us = [20.0] * PAIRS
    assert idle_dispute(times) is None
    times.idle_us = [400.0] * PAIRS
    assert "worked 400 µs" in str(idle_dispute(times))


def test_a_baseline_beside_which_a_flush_takes_longer_was_slowed() -> None:
    times = PairTimes()
    assert flush_ratio(times, 60_000) is None
    times.baseline.flush_us = [62.0] * PAIRS
    assert slowed_dispute(flush_ratio(times, 60_000)) is None
    times.baseline.flush_us = [120.0] * PAIRS
    assert "2.00 times" in str(slowed_dispute(flush_ratio(times, 60_000)))
    assert slowed_dispute(flush_ratio(times, None)) is None
