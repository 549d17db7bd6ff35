"""Integrity checks: three states, one glossary, and old records that know less."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from runner.evaluate.statistics import timing
from runner.integrity import MEANINGS, meaning_of
from runner.results import CheckStatus, IntegrityCheck, Timing
from runner.wire import from_json, to_json

EVALUATE = Path(__file__).resolve().parents[2] / "runner" / "evaluate"


def emitted_names() -> set[str]:
    """The names that `runner/evaluate` builds checks with, read from its source."""
    names = set()
    for path in EVALUATE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = ast.unparse(node.func)
            first = node.args[0]
            if called in ("IntegrityCheck", "IntegrityCheck.not_judged"):
                assert isinstance(first, ast.Constant), f"{path.name}: {ast.unparse(node)}"
                names.add(first.value)
    return names


def test_the_glossary_explains_the_checks_that_an_evaluation_makes_and_no_others() -> None:
    assert emitted_names() == MEANINGS.keys()


def test_a_check_that_was_not_judged_is_no_pass() -> None:
    check = IntegrityCheck.not_judged("physics", "the roofs are not measured yet")
    assert not check.passed
    assert check.status is CheckStatus.not_judged


def test_a_pass_of_another_status_cannot_be_built() -> None:
    for status in (CheckStatus.failed, CheckStatus.not_judged):
        with pytest.raises(ValueError, match="no pass"):
            IntegrityCheck("physics", True, "", status)


@pytest.mark.parametrize(
    ("passed", "detail", "status"),
    [
        (True, "all right", CheckStatus.passed),
        (False, "x changed", CheckStatus.failed),
        (True, "not judged: the roofs are not measured yet", CheckStatus.not_judged),
    ],
)
def test_a_record_without_status_is_read_as_it_was_meant(
    passed: bool, detail: str, status: CheckStatus
) -> None:
    record = {"check": "physics", "passed": passed, "detail": detail}
    check = from_json(IntegrityCheck, record)
    assert check.status is status
    assert check.passed is (status is CheckStatus.passed)
    assert from_json(IntegrityCheck, to_json(check)) == check


def test_a_timing_of_an_older_record_has_no_launch() -> None:
    record = to_json(timing("torch", [2.0, 2.1, 2.2], [1.0, 1.1, 1.2]))
    for name in ("launch_us", "baseline_launch_us"):
        del record[name]
    read = from_json(Timing, record)
    assert (read.launch_us, read.baseline_launch_us, read.launch_bound) == (None, None, False)


def test_titles_are_unique_and_meanings_are_sentences() -> None:
    assert len({meaning.title for meaning in MEANINGS.values()}) == len(MEANINGS)
    assert all(meaning.meaning.endswith(".") for meaning in MEANINGS.values())


def test_a_check_of_a_newer_version_is_shown_by_its_name() -> None:
    assert meaning_of("moon_phase").title == "Moon phase"
