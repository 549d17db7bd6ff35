"""The languages a candidate may be written in: one module each, all of one shape."""

from __future__ import annotations

import importlib
import pkgutil
from typing import cast

from runner.languages.compilation import CompileResult, Language, MissingCompiler

__all__ = ["CompileResult", "Language", "MissingCompiler", "for_suffix", "get", "names"]


def names() -> list[str]:
    """Every language, sorted; a new file beside this one is a new language."""
    modules = (module.name for module in pkgutil.iter_modules(__path__))
    return sorted(name for name in modules if name != "compilation")


def get(name: str) -> Language:
    """Raises LookupError naming the languages there are."""
    if name not in names():
        raise LookupError(f"{name!r} is not a language here. Use one of: {', '.join(names())}.")
    return cast(Language, importlib.import_module(f"{__name__}.{name}"))


def for_suffix(suffix: str) -> Language:
    """The language of a source file by its suffix (`.cpp`, `.py`). Raises LookupError."""
    for language in map(get, names()):
        if suffix == language.SUFFIX:
            return language
    known = ", ".join(f"{get(name).SUFFIX} ({name})" for name in names())
    raise LookupError(f"no language has the suffix {suffix!r}. Known: {known}.")
