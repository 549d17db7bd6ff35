"""The contract of all tools: what a model is told of them, and what it hears when it is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from runner import tools
from runner.conversation import Call
from tests.runner.workbench import FakeExaminer, Shelf, Workbench

ALL = tools.names()
GOOD: dict[str, dict[str, Any]] = {
    "analyze": {"candidate": 1},
    "benchmark": {"candidate": 1},
    "check": {"candidate": 1},
    "compare": {"first": 1, "second": 2},
    "compile_candidate": {"candidate": 1},
    "copy_zoo": {"kernel": "softmax_rows", "constants": {"VECTOR": 8}, "idea": "Wider."},
    "edit_candidate": {"parent": 1, "old": "int x;", "new": "int y;", "idea": "Another name."},
    "finish": {"summary": "Nothing is left to try."},
    "frontier": {},
    "list_notes": {},
    "list_zoo": {},
    "profile": {"candidate": 1},
    "read_candidate": {"candidate": 1},
    "read_details": {"call": "e1.1"},
    "read_knowledge": {"entry": "7"},
    "read_problem": {},
    "read_zoo": {"kernel": "softmax_rows"},
    "search_knowledge": {},
    "simulate": {"candidate": 1},
    "write_candidate": {"source": "// 1.3\n", "idea": "Anew."},
    "write_note": {"text": "Streaming stores pay."},
}


@pytest.fixture
def bench() -> Workbench:
    made = Workbench(examiner=FakeExaminer(), library=Shelf())
    made.write("1.2", "1.5")
    return made


def test_every_tool_is_covered_here() -> None:
    assert set(ALL) == set(GOOD)


@pytest.mark.parametrize("name", ALL)
def test_a_model_is_told_what_each_tool_and_argument_is_for(name: str) -> None:
    tool = tools.get(name)
    assert len(tool.description) > 40
    assert "." in tool.description
    assert "Arguments:" not in tool.description
    for argument in tool.schema["properties"].values():
        assert len(argument["description"]) > 10


@pytest.mark.parametrize("name", ALL)
def test_a_schema_is_a_closed_object_that_refers_to_nothing_outside_it(name: str) -> None:
    schema = tools.get(name).schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert set(schema.get("required", [])) <= set(schema["properties"])
    assert "$ref" not in repr(schema)
    assert "$defs" not in schema
    for argument in schema["properties"].values():
        kinds = [each.get("type") for each in argument.get("anyOf", [argument])]
        assert set(kinds) <= {"string", "integer", "object", "null"}


@pytest.mark.parametrize("name", ALL)
def test_an_unknown_argument_is_refused_with_those_that_there_are(
    name: str, bench: Workbench
) -> None:
    error = bench.refused(name, **GOOD[name], colour="red")
    assert error["field"] == "colour"
    assert all(argument in error["remedy"] for argument in GOOD[name])


@pytest.mark.parametrize(("name", "argument"), [(n, a) for n in ALL for a in GOOD[n]])
@pytest.mark.parametrize("wrong", [[], None, 1.5, True])
def test_a_wrong_type_is_refused_and_not_bent(
    name: str, argument: str, wrong: Any, bench: Workbench
) -> None:
    error = bench.refused(name, **{**GOOD[name], argument: wrong})
    assert error["field"].split(".")[0] == argument


@pytest.mark.parametrize("name", [name for name in ALL if GOOD[name]])
def test_a_missing_argument_is_named(name: str, bench: Workbench) -> None:
    required = tools.get(name).schema["required"]
    for argument in required:
        rest = {key: value for key, value in GOOD[name].items() if key != argument}
        assert bench.refused(name, **rest)["field"] == argument


@pytest.mark.parametrize("character", ["\0", "\ud800"])
@pytest.mark.parametrize(
    ("name", "argument"), [(n, a) for n in ALL for a in GOOD[n] if isinstance(GOOD[n][a], str)]
)
def test_text_that_no_file_can_hold_is_refused_with_a_remedy(
    name: str, argument: str, character: str, bench: Workbench
) -> None:
    error = bench.refused(name, **{**GOOD[name], argument: f"a{character}b"})
    assert error["field"] == argument
    assert "write ordinary text" in error["remedy"]


@pytest.mark.parametrize(
    "name", [name for name in ALL if {"candidate", "parent", "first"} & set(GOOD[name])]
)
def test_a_candidate_that_is_not_there_is_refused_with_those_that_are(
    name: str, bench: Workbench
) -> None:
    field = next(iter(GOOD[name]))
    for number in (0, -1, 3, 10**30):
        error = bench.refused(name, **{**GOOD[name], field: number})
        assert (error["field"], error["remedy"]) == (field, "Use a number from 1 to 2.")


def test_before_the_first_candidate_the_remedy_is_to_write_one() -> None:
    assert "write_candidate" in Workbench().refused("check", candidate=1)["remedy"]


def test_arguments_that_are_no_json_object_are_refused(bench: Workbench) -> None:
    answer = bench.raw(Call("m", "check", malformed='{"candidate": 1'))
    assert bench.fault(answer)["field"] == "arguments"


def test_a_tool_that_is_not_offered_is_refused_with_those_that_are(bench: Workbench) -> None:
    unknown = bench.refused("rm_rf")
    assert (unknown["field"], "benchmark" in unknown["remedy"]) == ("tool", True)
    work = tools.Work(bench.loop, "claude", "e9.1")
    kept = tools.call(work, Call("m", "benchmark", {"candidate": 1}), ("check",))
    assert bench.fault(kept)["remedy"] == "Use: check."


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("simulate", "read_details")])
def test_a_right_call_of_each_tool_is_answered_in_the_size_of_a_summary(
    name: str, bench: Workbench
) -> None:
    answer = bench.call(name, **GOOD[name])
    assert answer.text.strip()
    if name not in ("read_zoo", "read_problem"):
        assert len(answer.text) < 4_000


@pytest.mark.parametrize("name", [name for name in ALL if name not in ("simulate", "read_details")])
def test_a_call_repeated_after_a_crash_changes_nothing_more(name: str, bench: Workbench) -> None:
    call = Call("m", name, GOOD[name])
    first = bench.raw(call, "e99.1")
    kinds = ("candidate", "evaluation", "analysis", "note", "profile")
    before = [bench.events(kind) for kind in kinds]
    bench.restart()
    second = bench.raw(call, "e99.1")
    assert [bench.events(kind) for kind in kinds] == before
    assert (first.ok, second.ok) == (True, True)


def test_a_long_answer_is_cut_and_says_where_the_rest_is() -> None:
    bench = Workbench()
    source = "".join(f"int line_{number};\n" for number in range(3_000))
    bench.call("write_candidate", source=source, idea="Long.")
    answer = bench.call("read_candidate", candidate=1)
    assert len(answer.text) <= tools.TEXT_CHARACTERS
    assert "of 3000; read on with first_line=" in answer.text
    rest = bench.call("read_candidate", candidate=1, first_line=2_999)
    assert rest.text.endswith("int line_2998;\nint line_2999;\n[lines 2999–3000 of 3000]")
