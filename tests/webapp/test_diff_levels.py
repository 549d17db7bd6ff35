"""Levels are compared by what they mean: names do not count, values do, and time is bounded."""

from __future__ import annotations

import random
import re
import time

import pytest

from runner.analysis.levels import Level
from tests.webapp.analysed import FEWER_WARPS, ROWS, TILE, report_of
from webapp.review.diff import Row
from webapp.review.level_diff import LevelDiff, LineGroup, Side, diff_levels
from webapp.review.levels import OF_LANGUAGE
from webapp.review.source import read_source

SOURCE = read_source(TILE, "triton").lines
SAME_LINES = [(number, number) for number in range(1, 400)]
TRITON = OF_LANGUAGE["triton"]


def real(name: str, source: str = TILE, language: str = "triton") -> Level:
    return report_of(source, language).levels[0].level(name)


def compared(name: str, a: Level, b: Level, kernel: str = "softmax_short_rows") -> LevelDiff:
    return diff_levels(name, Side(a, kernel, SOURCE), Side(b, kernel, SOURCE), SAME_LINES)


def written(name: str, left: str, right: str, lines: dict[int, int] | None = None) -> LevelDiff:
    """Two texts, all of whose lines are from line 1 unless told otherwise."""
    all_one = dict.fromkeys(range(1, 1 + left.count("\n") + right.count("\n")), 1)
    table = all_one if lines is None else lines
    return compared(name, Level(name, left, table), Level(name, right, table), "")


def groups_of(diff: LevelDiff) -> list[LineGroup]:
    return [group for stretch in diff.stretches for group in stretch.groups]


def changed_rows(diff: LevelDiff) -> list[Row]:
    return [row for group in groups_of(diff) for row in group.rows if row.kind != "same"]


def marked(row: Row) -> list[str]:
    sides = [side for side in (row.left, row.right) if side]
    return [span.text for side in sides for span in side.spans if span.changed]


RENAMINGS = {
    "ttir": (r"%([a-z]\w*)", lambda found: f"%v_{found[1]}"),
    "ttgir": (
        r"%([a-z]\w*)|#blocked\b",
        lambda found: f"%v_{found[1]}" if found[1] else "#blocked7",
    ),
    "llir": (r"%(\d+)", lambda found: f"%{3 * int(found[1]) + 7}"),
    "ptx": (r"(%[a-z]+)(\d+)", lambda found: f"{found[1]}{3 * int(found[2]) + 7}"),
    "sass": (r"\bR(\d+)\b", lambda found: f"R{(7 * int(found[1]) + 5) % 255}"),
}


@pytest.mark.parametrize("name", TRITON)
def test_other_names_for_the_same_values_are_no_difference(name: str) -> None:
    level = real(name)
    pattern, renamed = RENAMINGS[name]
    other = Level(name, re.sub(pattern, renamed, level.text), level.lines)
    assert other.text != level.text
    assert changed_rows(compared(name, level, other)) == []


def test_other_registers_and_labels_of_assembly_are_no_difference() -> None:
    left = "\tvaddps\t%ymm1, %ymm2, %ymm3\n.L12:\n\tmovq\t%rax, -8(%rsp)\n\tjne\t.L12\n"
    right = "\tvaddps\t%ymm4, %ymm0, %ymm9\n.L7:\n\tmovq\t%r11, -8(%rsp)\n\tjne\t.L7\n"
    assert changed_rows(written("asm", left, right)) == []
    wider = right.replace("%ymm", "%zmm")
    assert [row.kind for row in changed_rows(written("asm", left, wider))] == ["removed", "added"]


SWAPPED = {
    "ttir": (r"(arith\.subf) (%\w+), (%\w+)", r"\1 \3, \2"),
    "ttgir": (r"(arith\.subf) (%\w+), (%\w+)", r"\1 \3, \2"),
    "llir": (r"(fsub float) (%\w+), (%\w+)", r"\1 \3, \2"),
    "ptx": (r"(sub\.f32 \t%r\d+), (%r\d+), (%r\d+)", r"\1, \3, \2"),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_operands_that_change_places_are_a_difference_and_marked(name: str) -> None:
    level = real(name)
    text = re.sub(*SWAPPED[name], level.text, count=1)
    assert text != level.text
    [row] = changed_rows(compared(name, level, Level(name, text, level.lines)))
    assert row.kind == "changed"
    assert len(marked(row)) >= 2


def test_a_line_that_goes_over_to_another_layout_is_a_difference() -> None:
    head = "#blocked = #ttg.blocked<{a}>\n#blocked1 = #ttg.blocked<{b}>\n"
    left = head + "%x = tt.load %p : tensor<4xf32, #blocked>\n"
    right = left.replace("f32, #blocked>", "f32, #blocked1>")
    [row] = changed_rows(written("ttgir", left, right))
    assert marked(row) == ["#blocked", "#blocked1"]


def test_only_the_word_that_means_something_is_marked() -> None:
    left = "ld.global.b64 \t%r1, [%rd1];\nadd.s32 \t%r2, %r1, 1;\n"
    right = "ld.global.b128 \t%r9, [%rd4];\nadd.s32 \t%r3, %r9, 1;\n"
    [row] = changed_rows(written("ptx", left, right))
    assert marked(row) == ["b64", "b128"]


def test_lines_are_held_against_those_of_the_source_line_that_theirs_became() -> None:
    left = Level("ptx", "add.s32 \t%r1, %r1, 1;\nmul.lo.s32 \t%r2, %r1, 3;\n", {1: 5, 2: 6})
    right = Level(
        "ptx",
        "neg.s32 \t%r7, %r7;\nmul.lo.s32 \t%r2, %r1, 3;\nadd.s32 \t%r1, %r1, 1;\n",
        {1: 6, 2: 7, 3: 5},
    )
    diff = diff_levels("ptx", Side(left, "", SOURCE), Side(right, "", SOURCE), [(5, 5), (6, 7)])
    found = [
        (group.left and group.left.number, group.right and group.right.number, group.changed)
        for group in groups_of(diff)
    ]
    assert found == [(5, 5, False), (None, 6, True), (6, 7, False)]


def test_what_a_vanished_line_became_stands_where_the_line_was() -> None:
    left = Level("ptx", "neg.s32 \t%r7, %r7;\nnot.b32 \t%r1, %r1;\n", {1: 6, 2: 9})
    right = Level("ptx", "not.b32 \t%r1, %r1;\n", {1: 8})
    diff = diff_levels("ptx", Side(left, "", SOURCE), Side(right, "", SOURCE), [(5, 5), (9, 8)])
    found = [(group.left and group.left.number, group.changed) for group in groups_of(diff)]
    assert found == [(6, True), (9, False)]


def test_a_schedule_of_other_order_is_no_difference() -> None:
    text = "/*0000*/ MOV R1, R2 ;\n/*0010*/ FADD R3, R4, R5 ;\n"
    other = "/*0000*/ FADD R3, R4, R5 ;\n/*0010*/ MOV R1, R2 ;\n"
    left, right = Level("sass", text, {1: 3, 2: 4}), Level("sass", other, {1: 4, 2: 3})
    assert changed_rows(compared("sass", left, right)) == []


@pytest.mark.parametrize("name", TRITON)
def test_every_line_that_means_something_is_in_one_group_on_its_own_side(name: str) -> None:
    a, b = real(name), real(name, FEWER_WARPS)
    diff = compared(name, a, b)
    rows = [row for group in groups_of(diff) for row in group.rows]
    for side, level in (("left", a), ("right", b)):
        numbers = [getattr(row, side).number for row in rows if getattr(row, side)]
        assert len(numbers) == len(set(numbers))
        assert set(level.lines) & set(numbers)
        texts = level.text.split("\n")
        assert all(
            getattr(row, side).text.split()[0] in texts[getattr(row, side).number - 1]
            for row in rows
            if getattr(row, side)
        )


def test_half_the_warps_change_nothing_of_ttgir_but_the_layout_and_the_module() -> None:
    diff = compared("ttgir", real("ttgir"), real("ttgir", FEWER_WARPS))
    assert [marked(row) for row in changed_rows(diff)] == [["16", "8"], ["16", "8"]]


def test_another_name_of_the_kernel_is_no_difference_even_if_it_is_that_of_an_opcode() -> None:
    text = ".visible .entry {0}(\n\tld.param.b64 \t%rd1, [{0}_param_0];\n\tadd.s32 \t%r1, %r1, 1;\n"
    left, right = (Level("ptx", text.format(name)) for name in ("add", "sum"))
    diff = diff_levels("ptx", Side(left, "add", SOURCE), Side(right, "sum", SOURCE), SAME_LINES)
    assert changed_rows(diff) == []


def test_host_assembly_is_compared_too() -> None:
    level = real("asm", ROWS, "cpp")
    other = Level("asm", level.text.replace("vmaxps", "vminps"), level.lines)
    diff = compared("asm", level, other)
    assert diff.added == level.text.count("\tvmaxps")
    assert marked(changed_rows(diff)[0]) == ["vmaxps", "vminps"]


def listing(draw: random.Random, lines: int) -> str:
    opcodes = ["FADD", "FMUL", "FFMA", "MOV", "LDG.E.128", "STG.E", "IMAD", "ISETP.LT.AND"]
    return "".join(
        f"        /*{16 * n:04x}*/    {draw.choice(opcodes)} R{draw.randrange(250)},"
        f" R{draw.randrange(250)}, 0x{draw.randrange(16):x} ;\n"
        for n in range(lines)
    )


@pytest.mark.parametrize("places", [1, 40], ids=["one group", "forty groups"])
def test_twenty_thousand_instructions_take_bounded_time_and_the_page_says_what_is_left_out(
    places: int,
) -> None:
    draw = random.Random(5)
    table = {number: 1 + number % places for number in range(1, 20_001)}
    left, right = listing(draw, 20_000), listing(draw, 20_000)
    begin = time.thread_time()
    diff = compared("sass", Level("sass", left, table), Level("sass", right, table))
    assert time.thread_time() - begin < 8
    assert diff.notes
    assert sum(group.hidden for group in groups_of(diff)) > 15_000
    assert sum(len(group.rows) for group in groups_of(diff)) <= 3_000


def test_beyond_the_bound_the_rest_is_not_compared_and_that_is_said() -> None:
    text = "add.s32 \t%r1, %r1, 1;\n" + "x" * 4_000_000
    diff = written("ptx", text, text, lines={})
    assert any("Only the first 40,000 lines" in note for note in diff.notes)


@pytest.mark.parametrize("name", [*TRITON, "asm"])
@pytest.mark.parametrize(
    "unit",
    ["(", "loc(", "loc((", "%", "%a", "\t", "/*", " !x", "1", "@%p1 ", "{", "\\", "$L__BB", ".L"],
)
def test_no_line_however_odd_takes_long_to_read(name: str, unit: str) -> None:
    line = unit * (39_000 // len(unit)) + "\n"
    begin = time.thread_time()
    written(name, line * 3, line * 2)
    assert time.thread_time() - begin < 1
