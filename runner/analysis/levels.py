"""Every level of a compiled kernel as text, and which line of the source each text line is from.

Owns the shape that all languages share and the line tables of Triton's levels. A line that comes
from a library counts for the line of the candidate's file that called it.
"""

from __future__ import annotations

import base64
import re
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass, field

from runner.analysis.captured import CompiledKernel

CANDIDATES = ("candidate.py", "candidate.cu")  # what the file is called where it is analysed
Lines = dict[int, int]


@dataclass(frozen=True)
class Level:
    """One representation. `lines` maps its lines to lines of the source, both from 1.

    As JSON the former are keys, `{"12": 3}`, and become numbers again when it is read.
    """

    name: str
    text: str
    lines: Lines = field(default_factory=dict)


@dataclass(frozen=True)
class Levels:
    """One kernel from source to machine code, in the order of compilation; `binary` is the cubin
    itself, Base64 as JSON.
    """

    kernel: str
    target: str
    levels: tuple[Level, ...]
    binary: bytes = b""

    def level(self, name: str) -> Level:
        """Raises KeyError for a level that this language does not have."""
        for level in self.levels:
            if level.name == name:
                return level
        raise KeyError(name)


def levels_of(kernel: CompiledKernel, target: str, folder: str = "") -> Levels:
    """What there is of TTIR, TTGIR, LLIR, PTX and SASS. `folder` is where it was compiled."""
    ptx = ptx_lines(kernel.ptx)
    tables: dict[str, tuple[str, Callable[[str], Lines]]] = {
        "ttir": (kernel.ttir, mlir_lines),
        "ttgir": (kernel.ttgir, mlir_lines),
        "llir": (kernel.llir, llvm_lines),
        "ptx": (kernel.ptx.partition(_PTX_DEBUG)[0], ptx_lines),
        "sass": (kernel.sass, lambda text: sass_lines(text, ptx)),
    }
    levels = tuple(
        Level(name, _without_folders(text, folder), lines(text))
        for name, (text, lines) in tables.items()
        if text
    )
    return Levels(kernel.name, target, levels, base64.b64decode(kernel.cubin))


_PTX_DEBUG = "\t.section\t.debug_"  # bytes of debug sections, among them the name of the folder


def _without_folders(text: str, folder: str) -> str:
    """The same kernel must give the same text wherever it was compiled."""
    for path in filter(None, (folder, sysconfig.get_paths()["purelib"])):
        text = text.replace(f"{path}/", "").replace(path, "")
    return text


def _is_own(path: str) -> bool:
    return path.rpartition("/")[2] in CANDIDATES


_MLIR_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")
_MLIR_USE = re.compile(r"loc\((#loc\d*)\)\s*$")
_MLIR_FILE = re.compile(r'^"([^"]*)":(\d+):\d+')
_MLIR_NAME = re.compile(r"#loc\d*")


def mlir_lines(text: str) -> Lines:
    """Of TTIR and TTGIR, by their `loc` attributes."""
    definitions: dict[str, str] = {}
    for line in text.splitlines():
        if found := _MLIR_DEFINITION.match(line):
            definitions[found[1]] = found[2]
    resolved: dict[str, int | None] = {}

    def resolve(name: str) -> int | None:
        if name not in resolved:
            resolved[name] = None  # a cycle has no line
            resolved[name] = _mlir_line(definitions.get(name, ""), resolve)
        return resolved[name]

    lines = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _MLIR_USE.search(line)
        source = resolve(found[1]) if found else None
        if source is not None:
            lines[number] = source
    return lines


def _mlir_line(definition: str, resolve: Callable[[str], int | None]) -> int | None:
    """Callee before caller: a helper in the candidate's file is nearer to the cause."""
    if place := _MLIR_FILE.match(definition):
        own = _is_own(place[1])
        return int(place[2]) or None if own else None
    for name in _MLIR_NAME.findall(definition):
        line = resolve(name)
        if line is not None:
            return line
    return None


_LLVM_ENTRY = re.compile(r"^!(\d+) = (?:distinct )?!(DI\w+)\((.*)\)$")
_LLVM_USE = re.compile(r"!dbg !(\d+)")
_LLVM_FIELD = re.compile(r'(line|scope|file|inlinedAt|filename): (?:!(\d+)|(\d+)|"([^"]*)")')


def llvm_lines(text: str) -> Lines:
    """Of LLVM IR, by its debug metadata."""
    entries: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if found := _LLVM_ENTRY.match(line):
            fields = _LLVM_FIELD.findall(found[3])
            entries[found[1]] = {name: a or b or c for name, a, b, c in fields}
    lines = {}
    for number, line in enumerate(text.splitlines(), 1):
        found = _LLVM_USE.search(line)
        source = _llvm_line(found[1], entries) if found and not line.startswith("!") else None
        if source is not None:
            lines[number] = source
    return lines


def _llvm_line(key: str | None, entries: dict[str, dict[str, str]]) -> int | None:
    for _ in range(len(entries)):
        entry = entries.get(key or "", {})
        if "line" not in entry:
            return None
        scope = entries.get(entry.get("scope", ""), {})
        file = entries.get(scope.get("file", ""), {}).get("filename", "")
        if _is_own(file):
            return int(entry["line"]) or None
        key = entry.get("inlinedAt")
    return None


_PTX_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"')
_PTX_PLACE = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(.*)$")
_PTX_INLINED = re.compile(r"candidate\.py:(\d+):")
_PTX_CALLER = re.compile(r"inlined_at (\d+) (\d+) \d+")


def ptx_lines(text: str) -> Lines:
    """Of PTX: each `.loc` holds until the next; its comment has the chain of inlined calls."""
    files = {found[1]: found[2] for found in map(_PTX_FILE.match, text.splitlines()) if found}
    lines: Lines = {}
    current: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _PTX_PLACE.match(line):
            current = _ptx_place(found, files)
        elif line.startswith("}"):
            current = None
        elif current is not None and line.strip() and not line.lstrip().startswith(("$", "//")):
            lines[number] = current
    return lines


def _ptx_place(found: re.Match[str], files: dict[str, str]) -> int | None:
    """By LLVM's comment, by the file itself, or by who nvcc says inlined it."""
    if chain := _PTX_INLINED.search(found[3]):
        return int(chain[1]) or None
    if _is_own(files.get(found[1], "")):
        return int(found[2]) or None
    caller = _PTX_CALLER.search(found[3])
    if caller and _is_own(files.get(caller[1], "")):
        return int(caller[2]) or None
    return None


_SASS_PLACE = re.compile(r'^\s*//## File "([^"]*)", line (\d+)')
_SASS_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/")
PTX_FILE = ".nv_debug_ptx_txt"


def sass_lines(text: str, ptx: Lines) -> Lines:
    """Of nvdisasm's listing. By way of PTX, whose line table knows what was inlined where."""
    lines: Lines = {}
    direct: int | None = None
    by_ptx: int | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if found := _SASS_PLACE.match(line):
            if found[1] == PTX_FILE:
                by_ptx = ptx.get(int(found[2]))
            else:
                own = _is_own(found[1])
                direct = int(found[2]) if own else None
        elif _SASS_INSTRUCTION.match(line) and (source := by_ptx or direct):
            lines[number] = source
    return lines
