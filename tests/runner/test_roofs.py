"""Which roof binds a case, and how near it comes."""

from __future__ import annotations

import pytest

from runner import roofs
from runner.results import CaseResult, Ceiling, Outcome, Timing, Verdict


def roof(name: str, value: float | None, unit: str = "B/s", **more: str) -> Ceiling:
    return Ceiling(name, unit, value, more.pop("source", "measured"), "", more.pop("dtype", ""))


def case(flops: int, bytes_moved: int, us: float = 1.0) -> CaseResult:
    timing = Timing("torch", us, us, us, us, us, us, 1.0, (0.9, 1.1), Outcome.indistinguishable, 30)
    return CaseResult("wide", Verdict.passed, flops=flops, bytes_moved=bytes_moved, timing=timing)


DRAM, CACHE = roof("DRAM copy", 1e9), roof("L2 copy", 8e9)
PEAK = roof("FMA", 1e12, "FLOP/s", dtype="fp32")


def share(found: CaseResult, *ceilings: Ceiling) -> roofs.Share:
    reached = roofs.share(ceilings, found)
    assert reached is not None
    return reached


def test_a_case_of_few_operations_is_held_against_memory() -> None:
    assert share(case(100, 500), DRAM, CACHE, PEAK).words == "50% of DRAM copy (measured)"


def test_a_case_of_many_operations_is_held_against_the_peak_of_its_data_type() -> None:
    bf16 = roof("tensor cores", 4e12, "FLOP/s", dtype="bf16")
    assert share(case(250_000, 10), DRAM, PEAK, bf16).words == "25% of FMA (measured)"


def test_more_than_memory_gives_is_explained_by_the_slowest_level_that_can() -> None:
    words = share(case(100, 2000), DRAM, CACHE).words
    assert words == "200% of DRAM copy (measured); 25% of L2 copy: part of the data stayed in cache"


def test_more_than_every_level_gives_asks_to_be_explained() -> None:
    assert "to be explained" in share(case(100, 20_000), DRAM, CACHE).words


def test_what_was_measured_decides_before_what_a_datasheet_promises() -> None:
    promised = roof("HBM", 0.5e9, source="datasheet")
    assert share(case(100, 500), promised, DRAM).roof == DRAM
    assert share(case(100, 500), promised).words == "100% of HBM (datasheet)"


@pytest.mark.parametrize("ceilings", [(), (roof("DRAM copy", None),)])
def test_without_a_roof_there_is_no_share(ceilings: tuple[Ceiling, ...]) -> None:
    assert roofs.share(ceilings, case(100, 500)) is None


def test_what_was_not_timed_or_has_no_operations_has_no_share() -> None:
    assert roofs.share((DRAM,), CaseResult("wide", Verdict.passed, flops=1, bytes_moved=1)) is None
    assert roofs.share((DRAM,), case(0, 500)) is None
