"""The round trip between dataclasses and JSON, and what is refused on the way back."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest

from runner.wire import WireError, canonical, from_json, to_json


class Colour(StrEnum):
    red = "red"


@dataclass(frozen=True)
class Held:
    lines: dict[int, int] = field(default_factory=dict)
    named: dict[str, float] = field(default_factory=dict)
    coloured: dict[Colour, int] = field(default_factory=dict)
    binary: bytes = b""


def test_a_value_is_equal_to_itself_after_a_round_trip_through_text() -> None:
    held = Held({12: 3, -1: 0, 0: 7}, {"12": 1.5}, {Colour.red: 1}, b"\x00\xff\x7fELF")
    assert from_json(Held, json.loads(canonical(to_json(held)))) == held


def test_keys_that_are_numbers_stay_text_where_text_is_declared() -> None:
    assert from_json(Held, {"named": {"12": 1}}).named == {"12": 1.0}


@pytest.mark.parametrize("key", ["", "x", "1.0", "01", "+1", "-0", " 1", "1_0", "١"])
def test_a_key_that_is_no_whole_number_is_refused_with_its_path(key: str) -> None:
    with pytest.raises(WireError, match="must be int") as refused:
        from_json(Held, {"lines": {key: 1}})
    assert refused.value.field == f"Held.lines.{key}"


def test_a_key_outside_its_enumeration_is_refused() -> None:
    with pytest.raises(WireError, match="not one of red"):
        from_json(Held, {"coloured": {"blue": 1}})


@pytest.mark.parametrize("value", ["not base64!", "abc", "é", 3, None, ["QQ=="]])
def test_bytes_that_are_no_base64_text_are_refused(value: Any) -> None:
    with pytest.raises(WireError, match=r"Held\.binary: must be Base64 text"):
        from_json(Held, {"binary": value})
