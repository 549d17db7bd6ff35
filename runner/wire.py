"""Canonical JSON, and the round trip between frozen dataclasses and plain JSON values.

Canonical means: sorted keys, no spaces, UTF-8 kept as it is, no NaN or infinity. Event logs,
archives and database rows all hold this one form, so equal values have equal bytes.
"""

from __future__ import annotations

import base64
import dataclasses
import enum
import functools
import json
import re
import types
import typing
from typing import Any, TypeVar

T = TypeVar("T")


class WireError(ValueError):
    """A JSON value does not fit its dataclass; `field` is the dotted path to what is wrong."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field
        self.problem = problem


def canonical(value: Any) -> str:
    """The one JSON text of a JSON value. Raises ValueError for NaN and infinities."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def to_json(value: Any) -> Any:
    """Plain JSON values (dict, list, str, int, float, bool, None) of a dataclass tree.

    Keys become text, which is all that JSON has, and bytes Base64; `from_json` undoes both.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    return value


def from_json(cls: type[T], value: Any, path: str = "") -> T:
    """Build dataclass `cls` from JSON values; raises WireError naming the field that is wrong.

    Unknown keys are refused: a silently dropped field is a lost fact.
    """
    return typing.cast(T, _decode(cls, value, path or cls.__name__))


def _decode(kind: Any, value: Any, path: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _decode_optional(arguments, value, path)
    if origin is tuple:
        return _decode_tuple(arguments, value, path)
    if origin is dict:
        _expect(isinstance(value, dict), path, "must be an object")
        named, kind = arguments
        return {
            _decode_key(named, key, path): _decode(kind, item, f"{path}.{key}")
            for key, item in value.items()
        }
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, path)
    return _decode_scalar(kind, value, path)


def _decode_key(kind: Any, key: str, path: str) -> Any:
    """A key of an object; of numbers only the one spelling that `to_json` gives them."""
    if kind is not int:
        return _decode_scalar(kind, key, path)
    _expect(
        re.fullmatch(r"0|-?[1-9]\d*", key, re.ASCII) is not None, f"{path}.{key}", "must be int"
    )
    return int(key)


def _decode_optional(arguments: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    kinds = [kind for kind in arguments if kind is not type(None)]
    if len(kinds) == 1:
        return _decode(kinds[0], value, path)
    _expect(type(value) in kinds, path, f"must be one of {[kind.__name__ for kind in kinds]}")
    return value


def _decode_tuple(arguments: tuple[Any, ...], value: Any, path: str) -> Any:
    _expect(isinstance(value, list | tuple), path, "must be a list")
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_decode(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    _expect(len(value) == len(arguments), path, f"must have {len(arguments)} items")
    pairs = zip(arguments, value, strict=True)
    return tuple(_decode(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(pairs))


def _decode_dataclass(kind: Any, value: Any, path: str) -> Any:
    _expect(isinstance(value, dict), path, "must be an object")
    hints, required = _fields(kind)
    for key in value:
        _expect(key in hints, f"{path}.{key}", "is not a known field")
    for name in required:
        _expect(name in value, f"{path}.{name}", "is missing")
    try:
        return kind(**{k: _decode(hints[k], item, f"{path}.{k}") for k, item in value.items()})
    except WireError:
        raise
    except ValueError as error:
        raise WireError(path, str(error)) from error


@functools.cache
def _fields(kind: type) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The resolved type of each field, and the names without a default; resolving is slow."""
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    required = (f.name for f in fields if f.default is missing and f.default_factory is missing)
    return {field.name: hints[field.name] for field in fields}, tuple(required)


def _decode_scalar(kind: Any, value: Any, path: str) -> Any:
    if kind is Any:
        return value
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        try:
            return kind(value)
        except ValueError:
            choices = ", ".join(str(member.value) for member in kind)
            raise WireError(path, f"{value!r} is not one of {choices}") from None
    if kind is bytes:
        return _decode_bytes(value, path)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    _expect(type(value) is kind, path, f"must be {kind.__name__}, not {type(value).__name__}")
    return value


def _decode_bytes(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError):
        raise WireError(path, "must be Base64 text") from None


def _expect(condition: bool, path: str, problem: str) -> None:
    if not condition:
        raise WireError(path, problem)
