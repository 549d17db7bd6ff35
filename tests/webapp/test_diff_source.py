"""Sources are shown whole and visibly, whatever they hold; nothing in them becomes markup."""

from __future__ import annotations

import random

import pytest

from webapp.review.source import Line, Source, read_source, text_of
from webapp.review.templatetags.source import code


def joined(source: Source) -> str:
    return "".join(line.text + ("\n" if line.newline else "") for line in source.lines)


def marks(line: Line) -> list[str]:
    return [span.mark for span in line.spans if span.mark]


@pytest.mark.parametrize("language", ["", "cpp", "triton", "cuda"])
def test_the_spans_joined_are_the_source(language: str) -> None:
    draw = random.Random(3)
    alphabet = ["int ", "def f():", "\n", "'", '"""', "#if 0\n", "//", "\x00", "\u2066", "𝛑", "\r"]
    for _ in range(200):
        text = "".join(draw.choices(alphabet, k=draw.randint(0, 25)))
        assert joined(read_source(text, language)) == text


def test_lines_are_numbered_as_a_compiler_numbers_them() -> None:
    source = read_source("a\r\nb\x0bc\u2028d\ne")
    assert [line.number for line in source.lines] == [1, 2, 3]
    assert [line.newline for line in source.lines] == [True, True, False]


def test_keywords_comments_and_strings_are_coloured() -> None:
    line = read_source('return "s"; // why\n', "cpp").lines[0]
    css = {span.text.strip(): span.css for span in line.spans}
    assert css["return"] == "tk-k"
    assert css["// why"] == "tk-c"
    assert {span.css for span in line.spans if "s" in span.text and '"' in span.text} <= {"tk-s"}


@pytest.mark.parametrize(
    ("character", "mark"),
    [
        ("\x1b", "ESC"),
        ("\x00", "NUL"),
        ("\r", "CR"),
        ("\x7f", "DEL"),
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\u200b", "U+200B"),
        ("\ufeff", "U+FEFF"),
        ("\u00a0", "U+00A0"),
        ("\u2028", "U+2028"),
        ("\udc9b", "0x9B"),
    ],
)
def test_a_character_without_a_shape_is_shown_by_name(character: str, mark: str) -> None:
    line = read_source(f"a{character}b", "cpp").lines[0]
    assert marks(line) == [mark]
    html = code(line)
    assert mark in html
    assert character not in html


def test_tabs_and_letters_of_any_script_stay_as_they_are() -> None:
    assert marks(read_source("\tгипотеза 速い é µ\n").lines[0]) == []


def test_bytes_that_are_no_text_are_kept_and_named() -> None:
    source = read_source(text_of(b"ok \xff\xfe end\n"))
    assert marks(source.lines[0]) == ["0xFF 0xFE"]


def test_markup_in_a_source_is_inert() -> None:
    line = read_source('<script>alert("x")</script> &amp; <img onerror=a>\n', "cpp").lines[0]
    html = code(line, "add")
    assert "<script" not in html
    assert "<img" not in html
    assert html.count("&lt;") == 3
    assert "&quot;x&quot;" in html


def test_a_very_long_line_is_folded_with_its_length() -> None:
    html = code(read_source("x" * 5000 + "\n").lines[0])
    assert "<details" in html
    assert "5,000 characters in this line" in html
    assert html.count("x") >= 5000


def test_what_even_the_fold_leaves_out_is_counted() -> None:
    html = code(read_source("y" * 300_000).lines[0])
    assert "199,000 more characters: see the download" in html


def test_a_fold_may_cut_between_marks() -> None:
    html = code(read_source("a\x1b" * 700).lines[0])
    assert html.count("ESC") == 700 * 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int a;\n" * 40_000, "200,000 characters"),
        ("x" * 2_001, "a line has more than 2,000"),
        (":" * 10 + "\n" * 400, "200 or more blanks"),
    ],
    ids=["large", "long-line", "blanks"],
)
def test_sources_that_could_stall_the_colouring_are_shown_plain(text: str, said: str) -> None:
    source = read_source(text, "cpp")
    assert said in source.note
    assert joined(source) == text
    assert {span.css for line in source.lines for span in line.spans} <= {""}


def test_colouring_that_takes_too_long_goes_on_plainly() -> None:
    text = "return 1; // done\n" * 50
    source = read_source(text, "cpp", within_s=0)
    assert source.note == "No syntax colours from line 1 on: it took too long."
    assert joined(source) == text
    assert {span.css for line in source.lines for span in line.spans} == {""}
