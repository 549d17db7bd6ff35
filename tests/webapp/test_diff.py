"""The diff gives both sources back exactly, marks what changed, and keeps its work bounded."""

from __future__ import annotations

import random

import pytest

from webapp.review.diff import Diff, Region, Row, diff_sources, short_diff
from webapp.review.source import Line

PIECES = ["a", "b ", "foo(x)", "\n", "\n", "\t", "\x1b", "\u202e", " ", "\r\n", "é", "\udcff", "/*"]


def text(line: Line | None) -> str:
    return "" if line is None else line.text + ("\n" if line.newline else "")


def left(diff: Diff) -> str:
    return "".join(text(row.left) for row in diff.rows)


def right(diff: Diff) -> str:
    return "".join(text(row.right) for row in diff.rows)


def kinds(diff: Diff) -> list[str]:
    return [row.kind for row in diff.rows]


def words(line: Line | None) -> str:
    """A line with what is marked as changed in brackets."""
    spans = line.spans if line else ()
    return "".join(f"[{span.text}]" if span.changed else span.text for span in spans)


@pytest.mark.parametrize("ignore_space", [False, True])
@pytest.mark.parametrize("language", ["", "cpp", "triton"])
def test_each_side_read_down_is_its_source_exactly(language: str, ignore_space: bool) -> None:
    draw = random.Random(7)
    for _ in range(150):
        one = "".join(draw.choices(PIECES, k=draw.randint(0, 30)))
        two = "".join(draw.choices(PIECES, k=draw.randint(0, 30)))
        diff = diff_sources(one, two, language, ignore_space=ignore_space)
        assert left(diff) == one
        assert right(diff) == two


def test_line_numbers_run_without_a_gap_on_both_sides() -> None:
    diff = diff_sources("a\nb\nc\nd\n", "a\nx\ny\nz\nd\ne\n")
    for side in ("left", "right"):
        numbers = [getattr(row, side).number for row in diff.rows if getattr(row, side)]
        assert numbers == list(range(1, len(numbers) + 1))


def test_equal_sources_have_no_change() -> None:
    diff = diff_sources("int a;\nint b;\n", "int a;\nint b;\n", "cpp")
    assert kinds(diff) == ["same", "same"]
    assert (diff.added, diff.removed, diff.changes) == (0, 0, 0)


def test_two_empty_sources_are_the_same() -> None:
    assert diff_sources("", "").rows == ()


def test_a_changed_constant_is_marked_as_one_word_on_both_sides() -> None:
    diff = diff_sources("constexpr int UNROLL = 1;\n", "constexpr int UNROLL = 16;\n", "cpp")
    assert [row.kind for row in diff.rows] == ["changed"]
    assert words(diff.rows[0].left) == "constexpr int UNROLL = [1];"
    assert words(diff.rows[0].right) == "constexpr int UNROLL = [16];"


def test_words_that_only_a_blank_separates_are_marked_as_one_phrase() -> None:
    diff = diff_sources("call(one two three, x)\n", "call(four five six, x)\n")
    assert words(diff.rows[0].left) == "call([one two three], x)"


def test_syntax_colours_survive_inside_a_marked_word() -> None:
    diff = diff_sources("int a = 1; // x\n", "int a = 2; // x\n", "cpp")
    line = diff.rows[0].right
    assert line is not None
    assert [(s.text, s.css) for s in line.spans if s.changed] == [("2", "tk-n")]
    assert [s.css for s in line.spans if s.text == "// x"] == ["tk-c"]


def test_unlike_lines_are_not_paired() -> None:
    diff = diff_sources("float x = load(p);\n", "#pragma omp parallel for\n")
    assert kinds(diff) == ["removed", "added"]


def test_an_inserted_line_leaves_its_changed_neighbour_paired() -> None:
    diff = diff_sources("int rows = 1;\n", "// a note about it\nint rows = 2;\n")
    assert kinds(diff) == ["added", "changed"]
    assert words(diff.rows[1].right) == "int rows = [2];"


def test_blanks_alone_are_a_change_unless_ignored() -> None:
    one, two = "a = 1;\n    b = 2;\n", "a = 1;\n\tb  =  2;\n"
    assert kinds(diff_sources(one, two)) == ["same", "changed"]
    ignored = diff_sources(one, two, ignore_space=True)
    assert kinds(ignored) == ["same", "same"]
    assert right(ignored) == two


def test_a_missing_last_newline_is_a_change_of_that_line() -> None:
    diff = diff_sources("a\nb\n", "a\nb")
    assert kinds(diff) == ["same", "changed"]
    assert diff.rows[1].right is not None
    assert diff.rows[1].right.newline is False


def test_changes_are_numbered_by_block_from_one() -> None:
    diff = diff_sources("a\nb\nc\nd\ne\n", "a\nB\nc\nD\nE\n")
    assert [row.change for row in diff.rows if row.change] == [1, 2]
    assert diff.changes == 2


def long_source(changed: int) -> str:
    return "".join(f"line {n}{' changed' if n == changed else ''}\n" for n in range(1, 101))


def shown(region: Region) -> list[Row]:
    return [] if region.folded else list(region.rows)


def test_unchanged_stretches_are_folded_and_nothing_is_lost() -> None:
    diff = diff_sources(long_source(0), long_source(50))
    regions = diff.regions(context=3)
    assert [region.folded for region in regions] == [True, False, True]
    assert [len(region.rows) for region in regions] == [46, 7, 47]
    assert [row for region in regions for row in region.rows] == list(diff.rows)


def test_a_stretch_of_two_lines_is_not_worth_a_fold() -> None:
    diff = diff_sources("a\nb\nc\nd\n", "A\nb\nc\nD\n")
    assert not any(region.folded for region in diff.regions(context=0))


def test_the_unified_view_puts_a_blocks_old_lines_before_its_new_ones() -> None:
    diff = diff_sources("k\na = 1\nb = 1\nz\n", "k\na = 2\nb = 2\nz\n")
    lines = [line for region in diff.regions() for line in region.unified]
    assert [line.sign for line in lines] == [" ", "-", "-", "+", "+", " "]
    assert [(line.left, line.right) for line in lines] == [
        (1, 1),
        (2, None),
        (3, None),
        (None, 2),
        (None, 3),
        (4, 4),
    ]


def test_the_short_diff_counts_what_it_leaves_out() -> None:
    one = "".join(f"a{n} = {n}\n" for n in range(40))
    two = "".join(f"a{n} = {n + 1}\n" for n in range(40))
    short = short_diff(one, two, limit_lines=10)
    assert len(short.lines) == 10
    assert short.more == 70
    assert (short.added, short.removed) == (40, 40)


def test_the_short_diff_of_equal_sources_is_empty() -> None:
    short = short_diff("a\n", "a\n")
    assert (short.lines, short.more, short.added, short.removed) == ((), 0, 0, 0)


@pytest.mark.parametrize(
    ("one", "two", "said"),
    [
        ("x\n" * 5000 + "y\n" * 4000, "z\n" + "x\n" * 4000 + "y\n" * 5000, "repeated lines"),
        ("a" * 5000 + "\n", "b" * 5000 + "\n", "not compared by words"),
        (
            "".join(f"{n} a\n" for n in range(3000)),
            "".join(f"{n} b\n" for n in range(3000)),
            "line",
        ),
    ],
    ids=["repeated", "one-long-line", "many-changed-lines"],
)
def test_work_beyond_the_bounds_is_given_up_and_said(one: str, two: str, said: str) -> None:
    diff = diff_sources(one, two, "cpp")
    assert left(diff) == one
    assert right(diff) == two
    assert any(said in note for note in diff.notes)


def test_ordinary_sources_have_nothing_to_say() -> None:
    assert diff_sources("int a = 1;\n", "int a = 2;\n", "cpp").notes == ()
