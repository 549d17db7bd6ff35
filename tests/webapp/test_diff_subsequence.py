"""The subsequence is a longest one, its opcodes rebuild both sides, and a window bounds it."""

from __future__ import annotations

import random
import time

import pytest

from webapp.review.diff import Opcode
from webapp.review.subsequence import opcodes_of


def equal(opcodes: list[Opcode]) -> int:
    return sum(i2 - i1 for tag, i1, i2, _, _ in opcodes if tag == "equal")


def longest(a: str, b: str) -> int:
    """Row by row, the textbook's way."""
    row = [0] * (len(b) + 1)
    for own in a:
        above = row
        row = [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if own == other else max(above[j + 1], row[j]))
    return row[-1]


def checked(a: str, b: str, window: int) -> list[Opcode]:
    """The opcodes, once they are known to cover both sides in order and to call equal what is."""
    opcodes = opcodes_of(a, b, window)
    i = j = 0
    for tag, i1, i2, j1, j2 in opcodes:
        assert (i1, j1) == (i, j)
        assert (a[i1:i2] == b[j1:j2]) or tag == "replace"
        i, j = i2, j2
    assert (i, j) == (len(a), len(b))
    return opcodes


def test_as_much_is_equal_as_can_be() -> None:
    draw = random.Random(3)
    for _ in range(300):
        a, b = ("".join(draw.choices("abc", k=draw.randint(0, 25))) for _ in range(2))
        assert equal(checked(a, b, 100)) == longest(a, b)


@pytest.mark.parametrize("window", [1, 2, 3, 4, 7])
def test_whatever_the_window_both_sides_are_covered(window: int) -> None:
    draw = random.Random(4)
    for _ in range(300):
        a, b = ("".join(draw.choices("abc", k=draw.randint(0, 25))) for _ in range(2))
        assert equal(checked(a, b, window)) <= longest(a, b)


def test_windows_lose_little_where_the_sides_stay_near_one_another() -> None:
    draw = random.Random(5)
    a = "".join(draw.choices("abcd", k=5_000))
    b = "".join(letter for letter in a if draw.random() > 0.05)
    assert equal(checked(a, b, 96)) >= 0.98 * len(b)


def test_repetitive_text_far_beyond_the_window_takes_bounded_time() -> None:
    begin = time.thread_time()
    assert equal(checked("ab" * 10_000, "a" * 20_000, 96)) > 5_000
    assert time.thread_time() - begin < 5


def test_equal_sides_are_one_stretch() -> None:
    assert opcodes_of("abc", "abc", 9) == [("equal", 0, 3, 0, 3)]
    assert opcodes_of("", "", 9) == []
