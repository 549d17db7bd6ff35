"""What models cost and how much they can read and write, from `prices.toml`.

Owns that table, its extension by a file of the operator, and the price of a request. It knows the
standard library alone, so a form, a validation or an import may ask it without a model's SDK. It
refuses to guess: a model that is in no table has no price.
"""

from __future__ import annotations

import functools
import os
import re
import tomllib
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from runner.spec import AgentSpec, Budgets, SpecError

TABLE = Path(__file__).parent / "prices.toml"
VARIABLE = "WARPDECK_PRICES"
DEFAULT_MODEL = "claude-opus-5-5"
EFFORTS = ("low", "medium", "high", "xhigh", "max")
DEFAULT_EFFORT = "medium"
_RATES = ("input", "output", "cache_read", "cache_write")
_DATED = re.compile(r"-\d{8}$")  # the same model, pinned to the day of its release


@dataclass(frozen=True)
class Rates:
    """US dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


@dataclass(frozen=True)
class Model:
    """A model as the table has it; `above` holds for prompts of more than `above_tokens` tokens.

    `date` is when the prices were read. `thinking` is whether it takes adaptive thinking and an
    effort.
    """

    name: str
    title: str
    context_tokens: int
    max_output_tokens: int
    thinking: bool
    rates: Rates
    date: date
    above: Rates | None = None
    above_tokens: int = 0

    def dollars(
        self,
        input_tokens: int,
        output_tokens: int,
        cache_read_tokens: int = 0,
        cache_write_tokens: int = 0,
    ) -> float:
        """The price of one request."""
        prompt = input_tokens + cache_read_tokens + cache_write_tokens
        long = self.above is not None and prompt > self.above_tokens
        rates = self.above if long and self.above is not None else self.rates
        cost = (
            input_tokens * rates.input
            + output_tokens * rates.output
            + cache_read_tokens * rates.cache_read
            + cache_write_tokens * rates.cache_write
        )
        return cost / 1e6


def models() -> dict[str, Model]:
    """Every model with a price, by name; raises SpecError for a bad file of the operator."""
    return _models(os.environ.get(VARIABLE, ""))


def find(name: str) -> Model | None:
    """The model of that name, with or without the day of its release."""
    known = models()
    return known.get(name) or known.get(_DATED.sub("", name))


def check(player: AgentSpec, budgets: Budgets) -> None:
    """Refuse an effort that there is not, and a budget of dollars that could not be kept."""
    if player.effort and player.effort not in EFFORTS:
        remedy = f"Use one of: {', '.join(EFFORTS)}."
        raise SpecError("effort", f"{player.effort!r} is not offered.", remedy)
    model = player.model or DEFAULT_MODEL
    if budgets.dollars is not None and find(model) is None:
        problem = (
            f"the price of {model[:80]!r} is not known, so a budget of dollars cannot be kept."
        )
        remedy = f"Leave it empty, or name the model's price in a file that {VARIABLE} names."
        raise SpecError("dollars", problem, remedy)


@functools.cache
def _models(override: str) -> dict[str, Model]:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    entries: dict[str, dict[str, Any]] = table["models"]
    for entry in entries.values():
        entry.setdefault("date", table["date"])
    if override:
        _extend(entries, _read(Path(override)))
    return {name: _model(name, entry) for name, entry in entries.items()}


def _read(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problem = f"{path} cannot be read as TOML: {error}."
        raise SpecError(VARIABLE, problem, f"Write it like {TABLE.name}.") from error
    if not isinstance(table.get("models"), dict) or not table["models"]:
        problem = f"{path} names no models."
        raise SpecError(VARIABLE, problem, "Give a table [models.NAME] for each.")
    return table


def _extend(entries: dict[str, dict[str, Any]], table: dict[str, Any]) -> None:
    """Change and add models, field by field."""
    if not isinstance(table.get("date"), date):
        problem = f"date is {table.get('date')!r}."
        raise SpecError(VARIABLE, problem, "Say of which day the prices are, as date = 2026-10-10.")
    for name, entry in table["models"].items():
        if not isinstance(entry, dict):
            problem = f"models.{name} is no table."
            raise SpecError(VARIABLE, problem, f"Write [models.{name}].")
        known = entries.get(name, {"title": name, "thinking": True})
        entries[name] = {**known, "date": table["date"], **entry}


def _model(name: str, entry: dict[str, Any]) -> Model:
    above = entry.get("above")
    if above is not None and not isinstance(above, dict):
        raise SpecError(VARIABLE, f"models.{name}.above is no table.", "Give prices in it.")
    where = f"models.{name}"
    return Model(
        name=name,
        title=str(entry["title"]),
        context_tokens=_count(where, entry, "context_tokens"),
        max_output_tokens=_count(where, entry, "max_output_tokens"),
        thinking=bool(entry["thinking"]),
        rates=_rates(where, entry),
        date=entry["date"],
        above=None if above is None else _rates(f"{where}.above", above),
        above_tokens=0 if above is None else _count(f"{where}.above", above, "prompt_tokens"),
    )


def _rates(where: str, entry: dict[str, Any]) -> Rates:
    return Rates(*(_dollars(where, entry, field) for field in _RATES))


def _count(where: str, entry: dict[str, Any], field: str) -> int:
    value = entry.get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        problem = f"{where}.{field} is {value!r}."
        raise SpecError(VARIABLE, problem, "Give a whole number of tokens.")
    return value


def _dollars(where: str, entry: dict[str, Any], field: str) -> float:
    value = entry.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
        problem = f"{where}.{field} is {value!r}."
        raise SpecError(VARIABLE, problem, "Give dollars per million tokens.")
    return float(value)
