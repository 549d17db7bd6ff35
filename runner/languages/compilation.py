"""What every language module gives and returns. Owns the shape, knows no language."""

from __future__ import annotations

import math
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from runner import processes, sandbox
from runner.spec import Limits

OUTPUT_BYTES = 32 * 1024
# A source can make the compiler compute and write without end.
MEMORY_BYTES = 4 << 30
FILE_BYTES = 256 << 20


class MissingCompiler(RuntimeError):
    """The tool a language needs is not on this machine; `remedy` says how to get it."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True)
class CompileResult:
    """`artifact` is what a candidate process loads; None unless `ok`.

    `output` is what the tools said, with the private build folder cut from every path.
    `reason` is the one-sentence summary of a failure.
    """

    ok: bool
    artifact: Path | None
    output: str
    versions: dict[str, str]
    reason: str = ""


class Language(Protocol):
    """The shape of `languages/<name>.py`; a module is the implementation.

    `set_constants` rewrites tuning constants and raises ValueError naming one that is not
    declared exactly once. `compile` writes only inside `folder`, never runs the source, raises
    MissingCompiler and runner.processes.Cancelled.
    """

    LANGUAGE: str
    SUFFIX: str
    LEXER: str

    def set_constants(self, source: str, constants: dict[str, int]) -> str: ...

    def compile(
        self,
        source: str,
        folder: Path,
        limits: Limits,
        *,
        cancel: threading.Event | None = None,
    ) -> CompileResult: ...


def run_tool(
    argv: list[str],
    folder: Path,
    limits: Limits,
    cancel: threading.Event | None,
    output_bytes: int = OUTPUT_BYTES,
) -> processes.Finished:
    """One compiler or disassembler on a candidate's file, in the sandbox. Raises Cancelled."""
    limited = sandbox.limited(
        argv,
        cpu_s=math.ceil(limits.compile_s),
        memory_bytes=MEMORY_BYTES,
        file_bytes=FILE_BYTES,
    )
    return processes.run(
        sandbox.command(limited, folder, writable=True),
        deadline_s=limits.compile_s,
        output_bytes=output_bytes,
        folder=folder,
        environment=sandbox.environment(folder, {"LC_ALL": "C"}),
        cancel=cancel,
    )


def replace_once(source: str, name: str, pattern: str, value: int) -> str:
    """Put `value` in place of group 2 of the only match of `pattern`; ValueError otherwise."""
    matches = list(re.finditer(pattern, source, re.MULTILINE))
    if len(matches) != 1:
        found = f"{len(matches)} times" if matches else "nowhere"
        raise ValueError(f"constant {name} is declared {found}; it must be declared exactly once")
    start, end = matches[0].span(2)
    return source[:start] + str(int(value)) + source[end:]
