"""The price table: what a request costs, what it refuses, what an operator can change."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from runner.messages import pricing
from runner.spec import AgentSpec, Budgets, RunSpec, SpecError

OWN = """
date = 2026-11-30
[models.house-model]
context_tokens = 50_000
max_output_tokens = 4_000
input = 1.0
output = 2.0
cache_read = 0.5
cache_write = 1.5
"""


def prices(path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv(pricing.VARIABLE, str(path))


def dollars(model: str, *tokens: int) -> float:
    found = pricing.find(model)
    assert found is not None
    return found.dollars(*tokens)


def test_each_kind_of_token_has_its_own_price() -> None:
    million = 1_000_000
    assert dollars("claude-opus-5-5", million, 0) == pytest.approx(4.0)
    assert dollars("claude-opus-5-5", 0, million) == pytest.approx(20.0)
    assert dollars("claude-opus-5-5", 0, 0, million, 0) == pytest.approx(0.2)
    assert dollars("claude-opus-5-5", 0, 0, 0, million) == pytest.approx(5.0)


def test_a_long_prompt_pays_the_higher_price_for_every_token_of_the_request() -> None:
    short = dollars("claude-haiku-5-5", 10_000, 1_000, 90_000)
    long = dollars("claude-haiku-5-5", 10_001, 1_000, 90_000)
    assert short == pytest.approx((10_000 * 0.1 + 1_000 * 0.5 + 90_000 * 0.01) / 1e6)
    assert long == pytest.approx((10_001 * 0.5 + 1_000 * 2.5 + 90_000 * 0.05) / 1e6)


def test_a_model_pinned_to_a_day_costs_what_the_model_costs() -> None:
    assert pricing.find("claude-haiku-4-5-20251001") is pricing.find("claude-haiku-4-5")


def test_an_unknown_model_has_no_price() -> None:
    assert pricing.find("house-model") is None


def test_the_default_model_and_effort_are_offered() -> None:
    assert pricing.DEFAULT_MODEL in pricing.models()
    assert pricing.DEFAULT_EFFORT in pricing.EFFORTS


def test_cache_writes_cost_more_than_input_and_reads_less() -> None:
    for model in pricing.models().values():
        for rates in filter(None, (model.rates, model.above)):
            assert rates.cache_read < rates.input < rates.cache_write < rates.output, model.name


def test_a_file_of_the_operator_adds_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prices(tmp_path / "prices.toml", OWN, monkeypatch)
    assert dollars("house-model", 1_000_000, 1_000_000) == pytest.approx(3.0)
    assert dollars("claude-opus-5-5", 1_000_000, 0) == pytest.approx(4.0)


def test_a_file_of_the_operator_changes_one_field_and_the_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "date = 2027-01-02\n[models.claude-opus-5-5]\ninput = 3.5\n"
    prices(tmp_path / "changed.toml", text, monkeypatch)
    changed = pricing.models()["claude-opus-5-5"]
    assert (changed.rates.input, changed.rates.output) == (3.5, 20.0)
    assert changed.date.isoformat() == "2027-01-02"
    assert pricing.models()["claude-opus-5"].date == tomllib.loads("d = 2026-10-10")["d"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("models = 3", "names no models"),
        ("[models.x]\ninput = 1.0", "date is None"),
        (OWN.replace("input = 1.0", ""), "models.house-model.input is None"),
        (OWN.replace("output = 2.0", "output = -2.0"), "models.house-model.output is -2.0"),
        (OWN.replace("50_000", "true"), "models.house-model.context_tokens is True"),
        ("date = 2026-01-01\n[models]\nx = 3", "models.x is no table"),
        ("not toml", "cannot be read as TOML"),
    ],
)
def test_a_bad_file_is_refused_with_the_field_and_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, problem: str
) -> None:
    prices(tmp_path / "bad.toml", text, monkeypatch)
    with pytest.raises(SpecError, match=r"WARPDECK_PRICES: .*") as caught:
        pricing.models()
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_missing_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pricing.VARIABLE, str(tmp_path / "nowhere.toml"))
    with pytest.raises(SpecError, match="cannot be read"):
        pricing.models()


def test_a_budget_of_dollars_needs_a_model_with_a_price() -> None:
    budgets = Budgets(dollars=1.0)
    spec = RunSpec("softmax", agent="claude", model="house-model", budgets=budgets)
    with pytest.raises(SpecError, match="price of 'house-model' is not known") as caught:
        spec.validate()
    assert caught.value.field == "dollars"
    RunSpec("softmax", agent="claude", budgets=budgets).validate()
    RunSpec("softmax", agent="claude", model="house-model").validate()


def test_an_effort_that_is_not_offered_is_refused_for_the_partner_too() -> None:
    partner = AgentSpec("claude", effort="heroic")
    spec = RunSpec("softmax", agent="claude", effort="high", partner=partner)
    with pytest.raises(SpecError, match="'heroic' is not offered") as caught:
        spec.validate()
    assert caught.value.field == "effort"


def test_agents_that_ask_no_model_need_no_price() -> None:
    RunSpec("softmax", agent="search", budgets=Budgets(dollars=1.0)).validate()
