"""Numbers of kernels side by side: paired by name, better or worse only where that is known."""

from __future__ import annotations

from typing import Any

import pytest

from tests.webapp.analysed import FEWER_WARPS, TILE, report_of
from webapp.review.findings import read_findings
from webapp.review.resources import Row, deltas, keyed, paired, read_kernels


def numbers(**changed: Any) -> dict[str, Any]:
    [kernel] = report_of(TILE).analysis.resources["kernels"]
    return {**kernel, **changed}


def rows_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Row]:
    [delta] = deltas(read_kernels({"kernels": [before]}), read_kernels({"kernels": [after]}))
    return {row.metric.name: row for row in delta.rows}


def test_numbers_of_a_real_analysis_are_all_there() -> None:
    [kernel] = read_kernels(report_of(TILE).analysis.resources)
    assert kernel.name == "softmax_short_rows"
    written = {row.metric.name: row.text for row in kernel.rows}
    assert written["registers"] == "64"
    assert written["threads"] == "512"
    assert written["occupancy"] == "50%"
    assert written["narrowest load"] == "16 B"
    assert "–" not in written.values()
    assert kernel.limiter == "registers"


def test_what_changed_between_two_real_analyses_is_known() -> None:
    a, b = (read_kernels(report_of(source).analysis.resources) for source in (TILE, FEWER_WARPS))
    [delta] = deltas(a, b)
    changed = {row.metric.name: (row.before_text, row.text) for row in delta.changed}
    assert changed["threads"] == ("512", "256")
    assert "narrowest load" not in changed
    assert {row.metric.name for row in delta.mix} >= {"global load", "fp32"}


@pytest.mark.parametrize(
    ("name", "before", "after", "outcome"),
    [
        ("spills", {"spill_load_bytes": 0}, {"spill_load_bytes": 8}, "worse"),
        ("spills", {"spill_load_bytes": 8}, {"spill_load_bytes": 0}, "better"),
        ("registers", {"registers": 48}, {"registers": 64}, ""),
        ("occupancy", {"occupancy": {"fraction": 0.5}}, {"occupancy": {"fraction": 0.75}}, ""),
        ("code", {"code_bytes": 64}, {"code_bytes": 128}, ""),
        (
            "narrowest load",
            {"accesses": [{"operation": "load", "bytes_each": 8}]},
            {"accesses": [{"operation": "load", "bytes_each": 16}]},
            "better",
        ),
        ("busy share", {"waves": [{"filled": 0.9}]}, {"waves": [{"filled": 0.6}]}, "worse"),
        ("registers", {"registers": 48}, {"registers": 48}, ""),
    ],
)
def test_better_and_worse_are_said_only_where_they_are_known(
    name: str, before: dict[str, Any], after: dict[str, Any], outcome: str
) -> None:
    assert rows_between(numbers(**before), numbers(**after))[name].outcome == outcome


def test_kernels_are_paired_by_name_and_then_in_order() -> None:
    assert paired(["one", "two"], ["two", "one"]) == [(1, 0), (0, 1)]
    assert paired(["one", "old"], ["new", "one"]) == [(1, 0), (0, 1)]
    assert paired(["one"], ["one", "more"]) == [(0, 0), (None, 1)]
    assert paired(["one", "more"], ["one"]) == [(0, 0), (1, None)]
    assert paired(["k", "k"], ["k", "k"]) == [(0, 0), (1, 1)]


def test_kernels_of_one_name_have_keys_of_their_own() -> None:
    assert keyed(["k", "j", "k"]) == ["k", "j", "k~2"]


STRANGE: list[Any] = [
    None, "x", [], {}, True, -1, float("nan"), float("inf"), 10**40, {"fraction": "much"}, [3],
    {"fraction": 10**400}, [{"operation": [], "bytes_each": {}, "filled": "all"}],
]  # fmt: skip


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: repr(value)[:20])
def test_numbers_of_a_strange_log_are_dashes_and_no_error(value: Any) -> None:
    whole = numbers()
    for name in whole:
        for row in rows_between(whole, numbers(**{name: value})).values():
            assert row.text
    assert read_kernels({"kernels": value}) is not None


@pytest.mark.parametrize("value", STRANGE, ids=lambda value: repr(value)[:20])
def test_findings_of_a_strange_log_are_read_as_far_as_they_go(value: Any) -> None:
    whole = {"kind": "register_spill", "severity": "warning", "message": "spills", "source": None}
    for name in (*whole, "evidence", "level", "kernel"):
        [finding] = read_findings([{**whole, name: value}])
        assert isinstance(finding.message, str)
        assert finding.line is None
    steps = {"steps": value, "assumed": value, "more": value}
    assert len(read_findings([{**whole, "evidence": steps}])) == 1


def test_the_gravest_finding_comes_first_and_has_its_remedy() -> None:
    found = read_findings(
        [
            {"kind": "tail_wave", "severity": "info", "message": "tail"},
            {"kind": "write_race", "severity": "error", "message": "race", "source": {"line": 4}},
            {"kind": "unheard_of", "severity": "fatal", "message": "what"},
        ]
    )
    assert [each.message for each in found] == ["race", "tail", "what"]
    assert found[0].line == 4
    assert found[0].remedy == "Give each program its own elements, or use an atomic."
    assert found[2].remedy == ""
