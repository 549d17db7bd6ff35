"""What an agent can do. A tool is one module here with a function of the module's name.

The function is plain and typed; its signature is the schema of the arguments and its docstring is
what a model reads: the first paragraphs say what the tool does, `Arguments:` explains each
argument. Nothing else registers it. Its first parameter, `work`, is the run it acts on, and is no
argument of the tool. It raises SpecError for what an agent can put right; any other exception is a
defect of ours and ends the run.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pkgutil
import typing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import docstring_parser
import pydantic

from runner.conversation import Call
from runner.loop import Answer, Loop
from runner.spec import SpecError

TEXT_CHARACTERS = 16_000  # of an answer; what is longer becomes details
WORK = "work"


@dataclass(frozen=True)
class Work:
    """What a tool works with: the run, who calls, and the call's name in the log."""

    loop: Loop
    author: str
    call: str


@dataclass(frozen=True)
class Tool:
    """A tool as it is offered: `schema` is the JSON schema of its arguments, an object."""

    name: str
    description: str
    schema: dict[str, Any]
    function: Callable[..., Answer]
    arguments: type[pydantic.BaseModel]


def names() -> tuple[str, ...]:
    """Every tool there is."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@functools.cache
def get(name: str) -> Tool:
    """Raises LookupError for a name that is not offered."""
    if name not in names():
        raise LookupError(f"there is no tool {name!r}")
    module = importlib.import_module(f"{__name__}.{name}")
    return _tool(getattr(module, name))


def call(work: Work, wanted: Call, offered: Iterable[str]) -> Answer:
    """Run a call of an agent. Whatever the agent did wrong is an answer, with the remedy."""
    offered = tuple(offered)
    try:
        if wanted.tool not in offered:
            raise SpecError(
                "tool", f"{wanted.tool[:80]!r} is not offered here.", f"Use: {', '.join(offered)}."
            )
        tool = get(wanted.tool)
        return _fitted(work, tool.function(work, **_checked(tool, wanted)))
    except SpecError as error:
        return refusal(error.field, error.problem, error.remedy)


def refusal(field: str, problem: str, remedy: str) -> Answer:
    """The structured error that an agent sees."""
    fault = {"error": {"field": field, "problem": problem, "remedy": remedy}}
    return Answer(json.dumps(fault, ensure_ascii=False), ok=False)


def _tool(function: Callable[..., Answer]) -> Tool:
    name: str = function.__name__
    doc = docstring_parser.parse(inspect.getdoc(function) or "", docstring_parser.Style.GOOGLE)
    explained = {each.arg_name: each.description or "" for each in doc.params}
    arguments = _arguments(function, explained)
    schema = arguments.model_json_schema()
    schema.pop("title", None)
    for each in schema.get("properties", {}).values():
        each.pop("title", None)
    description = "\n\n".join(filter(None, (doc.short_description, doc.long_description)))
    return Tool(name, description, schema, function, arguments)


def _arguments(
    function: Callable[..., Answer], explained: dict[str, str]
) -> type[pydantic.BaseModel]:
    """A model of the arguments: unknown ones are refused, types are not bent."""
    hints = typing.get_type_hints(function)
    fields: dict[str, Any] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == WORK:
            continue
        if not explained.get(parameter.name):
            raise TypeError(f"{function.__name__}: its docstring does not explain {parameter.name}")
        required = parameter.default is inspect.Parameter.empty
        default = ... if required else parameter.default
        text = " ".join(explained[parameter.name].split())
        info = pydantic.Field(default, description=text)
        fields[parameter.name] = (hints[parameter.name], info)
    config = pydantic.ConfigDict(extra="forbid", strict=True)
    return pydantic.create_model(function.__name__, __config__=config, **fields)


def _checked(tool: Tool, wanted: Call) -> dict[str, Any]:
    if wanted.malformed:
        problem = f"are no JSON object: {wanted.malformed[:200]!r}"
        remedy = "Call the tool again with one JSON object that fits its schema."
        raise SpecError("arguments", problem, remedy)
    for name, value in wanted.arguments.items():
        for text in _texts([name, value]):
            _require_text(name, text)
    try:
        made = tool.arguments.model_validate_json(json.dumps(wanted.arguments))
    except pydantic.ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part)[:80] for part in first["loc"]) or "arguments"
        remedy = f"{tool.name} takes: {_takes(tool)}."
        raise SpecError(field, f"{first['msg']}.", remedy) from None
    return {name: getattr(made, name) for name in tool.arguments.model_fields}


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for each in pair for text in _texts(each))
    elif isinstance(value, list):
        yield from (text for each in value for text in _texts(each))


def _require_text(name: str, text: str) -> None:
    """Refuse what no source file, database or page can hold."""
    field = name[:80] if name.isidentifier() else "arguments"
    remedy = "Leave it out: write ordinary text."
    if "\0" in text:
        raise SpecError(field, "holds a NUL character.", remedy)
    if any("\ud800" <= each <= "\udfff" for each in text):
        raise SpecError(field, "holds half of a surrogate pair.", remedy)


def _takes(tool: Tool) -> str:
    """`candidate (integer), parent (integer or null, optional)`."""
    required = tool.schema.get("required", ())
    words = []
    for name, each in tool.schema.get("properties", {}).items():
        kinds = [one.get("type", "") for one in each.get("anyOf", (each,))]
        optional = "" if name in required else ", optional"
        words.append(f"{name} ({' or '.join(kinds)}{optional})")
    return ", ".join(words) or "nothing"


def _fitted(work: Work, answer: Answer) -> Answer:
    """An answer that fits a context window, and says where the rest of it is to be read."""
    text, details = answer.text, answer.details
    if len(text) > TEXT_CHARACTERS:
        details = f"{text}\n\n{details}" if details else text
        text = f"{text[:TEXT_CHARACTERS]}…"
    if details:
        lines = details.count("\n") + 1
        text += f"\n[details: {lines:,} lines, read_details(call={work.call!r})]"
    return Answer(text, details, answer.ok)
