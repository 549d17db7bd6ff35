"""The little of Markdown that an agent's words are shown with."""

from __future__ import annotations

import time

import pytest

from tests.webapp.conversations import Talk
from webapp.runs.models import Event
from webapp.runs.prose import Block, Span, blocks, outside_code
from webapp.runs.rendering import render_event


def plain(text: str) -> str:
    """What a reader reads, whatever it looks like."""
    return "".join(b.code or "".join(span.text for span in b.spans) for b in blocks(text))


def test_code_between_fences_is_a_block_of_its_own() -> None:
    assert blocks("Before:\n```cpp\nint x = 1;\n\nint y;\n```\nAfter.") == [
        Block((Span("Before:"),)),
        Block(code="int x = 1;\n\nint y;"),
        Block((Span("After."),)),
    ]


def test_a_fence_that_is_not_closed_holds_all_that_follows() -> None:
    assert blocks("```\nint x;\n# no heading") == [Block(code="int x;\n# no heading")]


def test_headings_code_and_bold_words_lose_their_marks() -> None:
    (block,) = blocks("## Result\nUse `expf`, it is **much** faster.")
    assert block.spans == (
        Span("Result", bold=True),
        Span("\nUse "),
        Span("expf", code=True),
        Span(", it is "),
        Span("much", bold=True),
        Span(" faster."),
    )


@pytest.mark.parametrize(
    "text",
    ["a ** b ** c`", "2 * 3 ** 4", "#include <cmath>", "`` ` ``x", "- one\n- two", "****", "#", ""],
)
def test_what_is_no_mark_stays_as_it_was_written(text: str) -> None:
    assert plain(text).replace("`", "") == text.replace("`", "")


def test_a_cut_inside_a_fence_moves_before_it() -> None:
    text = "Words.\n```\n" + "int x;\n" * 9 + "```\nMore."
    assert outside_code(text, 30) == len("Words.\n")
    assert outside_code(text, len(text) - 2) == len(text) - 2
    assert outside_code("```\nint x;", 6) == 6


def test_a_megabyte_of_marks_takes_no_time() -> None:
    began = time.perf_counter()
    for mark in ("`", "**", "```\n", "# ", "**a", "`a\n"):
        blocks(mark * (1_000_000 // len(mark)))
    assert time.perf_counter() - began < 5


@pytest.mark.django_db
def test_marks_become_elements_and_markup_stays_text() -> None:
    talk = Talk()
    talk.turn("**<b>loud</b>** and `<i>`\n```\n<script>alert(1)</script>\n```")
    row = render_event(Event.objects.filter(run=talk.run, type="message").latest("seq"))
    assert "<b>&lt;b&gt;loud&lt;/b&gt;</b> and <code>&lt;i&gt;</code>" in row
    assert '<pre class="block">&lt;script&gt;alert(1)&lt;/script&gt;</pre>' in row
