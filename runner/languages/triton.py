"""Python candidates: Triton, or plain torch. One module with `run(*inputs)`.

Owns the check that a source is such a module, without importing it: a kernel compiles when it is
first launched, in the candidate's own process.
"""

from __future__ import annotations

import ast
import threading
from importlib import metadata
from pathlib import Path

from runner.languages.compilation import CompileResult, replace_once
from runner.spec import Limits

LANGUAGE = "triton"
SUFFIX = ".py"
LEXER = "python"
LONGEST = 256 * 1024  # characters; parsing happens in our own process and takes 600 times as much


def set_constants(source: str, constants: dict[str, int]) -> str:
    """Rewrite `NAME = 4` at module level, one assignment a line."""
    for name, value in constants.items():
        pattern = rf"^({name}(?:[ \t]*:[ \t]*[\w.\[\]]+)?[ \t]*=[ \t]*)(-?\d+)(?![\w.])"
        source = replace_once(source, name, pattern, value)
    return source


def compile(
    source: str, folder: Path, limits: Limits, *, cancel: threading.Event | None = None
) -> CompileResult:
    """Syntax, and that the module defines `run`; the source is parsed, never executed."""
    versions = {"triton": _version("triton")}
    path = folder / f"candidate{SUFFIX}"
    path.write_text(source, encoding="utf-8")
    if len(source) > LONGEST:
        reason = f"{len(source)} characters; the longest source that is read has {LONGEST}"
        return CompileResult(False, None, reason, versions, reason)
    try:
        tree = ast.parse(source, filename=path.name)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = (
            f"{path.name}:{getattr(error, 'lineno', None) or 1}: {type(error).__name__}: {error}"
        )
        return CompileResult(False, None, _excerpt(error, reason), versions, reason)
    if "run" not in _defined(tree):
        reason = "the module defines no run(*inputs) at its top level"
        return CompileResult(False, None, reason, versions, reason)
    return CompileResult(True, path, "", versions)


def _defined(tree: ast.Module) -> set[str]:
    """Names bound at module level, as far as they can be read off without running it."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
    return names


def _excerpt(error: BaseException, reason: str) -> str:
    text = getattr(error, "text", None) or ""
    return f"{reason}\n    {text.rstrip()}" if text else reason


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
