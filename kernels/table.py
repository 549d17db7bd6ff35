"""One table of a TOML file, read strictly: every complaint names the path of the field.

Owns presence, types and unknown keys. What a value means is the reader's affair.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

T = TypeVar("T")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}


class FieldError(ValueError):
    """`path` is dotted, with list positions from 0: `cases[2].dims.M`."""

    def __init__(self, path: str, complaint: str) -> None:
        super().__init__(f"{path}: {complaint}")
        self.path = path


class Table:
    """Read a table's keys one by one, then call `finish`, which refuses what nobody asked for."""

    def __init__(self, raw: Any, path: str = "") -> None:
        if not isinstance(raw, dict):
            raise FieldError(path, "must be a table.")
        self.raw = raw
        self.path = path
        self._seen: set[str] = set()

    def at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def has(self, key: str) -> bool:
        return key in self.raw

    def value(self, key: str, kind: type[T], default: T | None = None) -> T:
        """The value of `key`; without a default it must be there."""
        if key not in self.raw and default is not None:
            return default
        return _checked(self._take(key), kind, self.at(key))

    def text(self, key: str) -> str:
        """Text that says something."""
        value = self.value(key, str).strip()
        if not value:
            raise FieldError(self.at(key), "must not be empty.")
        return value

    def values(self, key: str, kind: type[T]) -> tuple[T, ...]:
        """A list with at least one item, all of one kind."""
        items = self._list(key)
        return tuple(_checked(item, kind, f"{self.at(key)}[{i}]") for i, item in enumerate(items))

    def table(self, key: str) -> Table:
        return Table(self._take(key), self.at(key))

    def tables(self, key: str) -> list[Table]:
        """An array of tables with at least one entry."""
        return [Table(item, f"{self.at(key)}[{i}]") for i, item in enumerate(self._list(key))]

    def mapping(self, key: str, kind: type[T]) -> dict[str, T]:
        """A table whose keys are free; empty where there is none."""
        if key not in self.raw:
            return {}
        inner = self.table(key)
        return {name: inner.value(name, kind) for name in inner.raw}

    def finish(self) -> None:
        if unknown := sorted(set(self.raw) - self._seen):
            known = ", ".join(sorted(self._seen))
            raise FieldError(self.at(unknown[0]), f"is not a known field; known are {known}.")

    def _take(self, key: str) -> Any:
        self._seen.add(key)
        if key not in self.raw:
            raise FieldError(self.at(key), "is missing.")
        return self.raw[key]

    def _list(self, key: str) -> list[Any]:
        items = self._take(key)
        if not isinstance(items, list) or not items:
            raise FieldError(self.at(key), "must be a list with at least one item.")
        return items


def _checked(value: Any, kind: type[T], path: str) -> T:
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:  # exact, because true is an int to Python
        raise FieldError(path, f"must be {_KINDS[kind]}, not {value!r}.")
    return value
