"""Problems are examined too: every one of the catalog holds, and planted bad ones are refused."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import pytest

from kernels.catalog import load_problem, slugs
from runner.__main__ import main
from runner.lint import ELEMENTS, Report, folder_of, lint, shrunk

CONTRACT = """
title = "{title}"
maths = "see reference.py"
summary = "Planted."
teaches = "nothing"

[[inputs]]
name = "x"
shape = ["M", "N"]

[[outputs]]
name = "y"
shape = ["M", "N"]

[cost]
flops = "5 * M * N"
bytes = "2 * M * N * itemsize"

[tolerance.fp32]
norm = {norm}
element = {element}

[[cases]]
name = "scored"
sets = ["host"]
dtype = "fp32"
dims = {{ M = 4, N = 50000 }}

[[cases]]
name = "equal"
sets = ["host"]
dtype = "fp32"
dims = {{ M = 4, N = 100 }}
scored = false
draws = {{ x = "equal" }}
"""
SOFTMAX = "torch.softmax(x, dim=1)"


def planted(folder: Path, formula: str, *, norm: float = 1e-5, element: float = 1e-4) -> Path:
    """A problem whose reference and baseline both are `formula`."""
    text = CONTRACT.format(title=folder.name, norm=norm, element=element)
    (folder / "problem.toml").write_text(text)
    (folder / "reference.py").write_text(
        f"import torch\n\n\ndef reference(x):\n    return {formula}\n\n\n"
        'BASELINES = {"torch": reference}\n'
    )
    return folder


def accepted(report: Report, case: str = "scored") -> set[str]:
    (found,) = (each for each in report.cases if each.case == case)
    return {trial.kernel for trial in found.trials if trial.accepted and not trial.honest}


@functools.cache
def examined(slug: str) -> Report:
    return lint(folder_of(slug))


@pytest.mark.parametrize("slug", slugs())
def test_every_problem_of_the_catalog_is_admissible(slug: str) -> None:
    report = examined(slug)
    assert report.admissible, [case for case in report.cases if not case.admissible]
    assert [case.case for case in report.cases] == [c.name for c in load_problem(slug).cases]
    assert all(not accepted(report, case.case) for case in report.cases if case.scored)


def test_what_computes_nothing_is_right_only_where_the_answer_is_degenerate() -> None:
    report = examined("softmax")
    assert "best constant" in accepted(report, "equal-33x2048-fp32")
    assert "ones" in accepted(report, "one-column-513x1-fp32")
    assert "first row" in accepted(report, "one-row-1x4099-fp32")
    assert accepted(report, "masked-65x5003-fp32") == set()


def test_a_sound_contract_anywhere_is_admissible(tmp_path: Path) -> None:
    report = lint(planted(tmp_path, SOFTMAX))
    assert report.admissible
    assert accepted(report) == set()


def test_a_tolerance_that_a_constant_meets_is_refused(tmp_path: Path) -> None:
    report = lint(planted(tmp_path, SOFTMAX, norm=0.9, element=0.99))
    assert not report.admissible
    assert {"best constant", "coarse result", "coarse inputs"} <= accepted(report)


def test_a_tolerance_that_only_a_downcast_meets_is_refused(tmp_path: Path) -> None:
    report = lint(planted(tmp_path, SOFTMAX, norm=1e-3, element=1e-3))
    assert not report.admissible
    assert accepted(report) == {"coarse result"}


def test_an_answer_that_does_not_depend_on_its_input_is_refused(tmp_path: Path) -> None:
    report = lint(planted(tmp_path, "x * 0 + 3"))
    assert not report.admissible
    assert {"best constant", "first element", "other inputs"} <= accepted(report)


def test_an_answer_that_is_its_input_is_refused(tmp_path: Path) -> None:
    report = lint(planted(tmp_path, "x * 1"))
    assert not report.admissible
    assert accepted(report) == {"copy of x"}


def test_a_tolerance_that_refuses_honest_arithmetic_is_refused(tmp_path: Path) -> None:
    report = lint(planted(tmp_path, SOFTMAX, norm=1e-9, element=1e-9))
    refused = {t.kernel for t in report.cases[0].trials if t.honest and not t.accepted}
    assert not report.admissible
    assert refused == {"answer, rounded once", "baseline torch"}


def test_a_shrunk_case_keeps_the_length_of_its_rows_and_sums() -> None:
    problem = load_problem("softmax")
    huge = next(case for case in problem.cases if case.dims["N"] > 100_000)
    assert shrunk(problem, huge).dims == {"M": 2, "N": huge.dims["N"]}
    for each in problem.cases:
        dims = shrunk(problem, each).dims
        assert 2 * dims["M"] * dims["N"] <= ELEMENTS


def test_the_command_prints_one_document_for_one_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = planted(tmp_path, SOFTMAX, norm=0.9, element=0.99)
    assert main(["lint", str(bad), "--json"]) == 0  # the command worked; the problem did not
    document = json.loads(capsys.readouterr().out)
    assert document.keys() == {"problem", "admissible", "cases", "scope"}
    assert (document["problem"], document["admissible"]) == (tmp_path.name, False)
    trial = document["cases"][0]["trials"][0]
    assert {"kernel", "accepted", "max_rel_error", "norm_error"} <= trial.keys()


def test_the_command_says_what_passes_that_must_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", str(planted(tmp_path, SOFTMAX, norm=0.9, element=0.99))]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{tmp_path.name}: NOT admissible")
    assert "best constant must fail and passes: the tolerance is too loose" in told


@pytest.mark.parametrize(("formula", "words"), [("x +", "SyntaxError"), ("x.nothing", "Attribute")])
def test_a_reference_that_does_not_run_is_named_as_the_problem(
    tmp_path: Path, formula: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", str(planted(tmp_path, formula)), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["field"] == "problem"
    assert words in error["problem"]


def test_an_unknown_problem_is_refused_with_those_there_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["lint", "sofmax", "--json"]) == 2
    assert "softmax" in json.loads(capsys.readouterr().out)["error"]["remedy"]
