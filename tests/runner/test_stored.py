"""Stored levels come back as they were; what only looks like them is refused with its reason."""

from __future__ import annotations

import gzip

import pytest

from runner.analysis import stored
from runner.analysis.levels import Level, Levels

PTX = Level("ptx", "mov.u32 %r1, %tid.x;\n", {1: 28})
KERNEL = Levels("softmax_rows", "sm_90", (PTX,), b"the binary")


def packed(text: str) -> bytes:
    return gzip.compress(text.encode("utf-8", "surrogatepass"))


def test_levels_come_back_with_their_line_tables_and_without_the_binary() -> None:
    assert stored.unpack(stored.pack([KERNEL])) == (Levels("softmax_rows", "sm_90", (PTX,)),)


def test_equal_levels_have_equal_bytes() -> None:
    assert stored.pack([KERNEL]) == stored.pack([KERNEL])


def test_more_than_the_bound_is_refused_before_it_is_unpacked() -> None:
    bomb = gzip.compress(b" " * (stored.MAX_BYTES + 2))
    with pytest.raises(ValueError, match="unpack to more than 33,554,432 bytes"):
        stored.unpack(bomb)


@pytest.mark.parametrize(
    "content",
    [
        b"no gzip at all",
        stored.pack([KERNEL])[:-12],
        stored.pack([KERNEL])[:30] + b"\xff" * 40,
        packed("[" * 200_000),
        packed('{"kernel": "k"}'),
        packed('[{"kernel": "k", "target": "t", "levels": 3}]'),
        packed('[{"kernel": "\\ud800", "target": "t", "levels": []}]'),
        packed("["),
        b"",
    ],
    ids=["text", "cut", "garbled", "deep", "object", "wrong type", "surrogate", "half", "empty"],
)
def test_anything_else_is_called_damaged(content: bytes) -> None:
    with pytest.raises(ValueError, match="the stored levels are damaged"):
        stored.unpack(content)
