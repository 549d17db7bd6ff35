"""The chart's line follows the candidate that leads by the floor of its interval."""

from __future__ import annotations

from dataclasses import dataclass

from webapp.runs.chart import chart


@dataclass(frozen=True)
class Row:
    number: int
    speedup: float | None
    ci_low: float | None
    verdict: str = "passed"


def test_a_sure_candidate_leads_although_a_noisy_one_has_the_higher_middle() -> None:
    drawn = chart([Row(1, 1.0, 0.98), Row(2, 1.7, 1.6), Row(3, 1.8, 1.2)])
    assert [point.number for point in drawn.points if point.best] == [2]
    heights = [float(corner.split(",")[1]) for corner in drawn.steps.split()]
    assert min(heights) == drawn.points[1].y
    assert heights[-1] == drawn.points[1].y


def test_a_run_without_a_measured_candidate_has_no_line() -> None:
    drawn = chart([Row(1, None, None, "crashed"), Row(2, None, None, "")])
    assert drawn.steps == ""
    assert [point.shape for point in drawn.points] == ["cross", "ring"]
    assert not any(point.best for point in drawn.points)
