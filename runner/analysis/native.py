"""C++ for the host: its assembly with the line table, in the shape of every language's levels.

There is no resource analysis of host code; an analysis that gives only levels says so.
"""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

from runner.analysis.levels import Level, Levels, Lines
from runner.languages import MissingCompiler, cpp
from runner.languages.compilation import run_tool
from runner.spec import Limits

SOURCE, ASSEMBLY = "candidate.cpp", "candidate.s"
# As the evaluation builds it, but stopped before the assembler. -g1 is the line table alone.
FLAGS = (*(flag for flag in cpp.FLAGS if flag != "-shared"), "-S", "-g1")
ASSEMBLY_BYTES = 32 << 20
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"[^"]*"\s+)?"([^"]*)"')
_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_ERROR = re.compile(rf"{re.escape(SOURCE)}:(\d+):\d+: (?:fatal )?error: ([^\n]*)")


class DoesNotCompile(Exception):
    """g++ refused the source; `line` is the first one that it names."""

    def __init__(self, output: str, line: int | None) -> None:
        super().__init__(output)
        self.line = line


def cpp_levels(
    source: str, folder: Path, limits: Limits, cancel: threading.Event | None = None
) -> Levels:
    """Compile in the sandbox. Raises DoesNotCompile, MissingCompiler, Cancelled."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise MissingCompiler("g++ is not on this machine.", "Install it.")
    (folder / SOURCE).write_text(source, encoding="utf-8")
    # Without the map the folder's name is in the text, and no two texts of a source are equal.
    plain = ("-fdiagnostics-color=never", f"-ffile-prefix-map={folder}=.")
    argv = [compiler, *FLAGS, *plain, SOURCE, "-o", ASSEMBLY]
    finished = run_tool(argv, folder, limits, cancel)
    if finished.timed_out:
        raise DoesNotCompile(f"g++ was stopped after {limits.compile_s:g} s", None)
    if finished.status != 0:
        found = _ERROR.search(finished.output)
        words = found[2] if found else finished.output[-2000:]
        raise DoesNotCompile(words, int(found[1]) if found else None)
    with (folder / ASSEMBLY).open("rb") as file:
        text = file.read(ASSEMBLY_BYTES).decode("utf-8", errors="replace")
    return Levels("host", "host", (Level("asm", text, assembly_lines(text)),))


def assembly_lines(text: str) -> Lines:
    """Each `.loc` holds until the next; directives and labels have no line."""
    files: dict[str, str] = {}
    lines: Lines = {}
    current: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if file := _FILE.match(line):
            files[file[1]] = file[2]
        elif place := _PLACE.match(line):
            own = files.get(place[1], "").rpartition("/")[2] == SOURCE
            current = int(place[2]) or None if own else None
        elif current is not None and line.startswith("\t") and not line.startswith("\t."):
            lines[number] = current
    return lines
