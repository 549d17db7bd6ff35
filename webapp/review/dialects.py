"""What of a compiled text is meaning, and what is bookkeeping: names, locations, addresses.

Owns one description for each level. A line's `key` has its numbering taken out, so that two lines
which differ in nothing but the names of values are equal; `names` gives those names back for a
check that they stand for the same values. It compares nothing.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

MAX_KEYED = 40_000  # characters; a longer line is its own key
MAX_NAME = 500  # characters of a kernel's name that tell it from others
KERNEL = "‹kernel›"


@dataclass(frozen=True)
class Uses:
    """The names of a line: those of the values it defines, and all of them in order."""

    defined: tuple[str, ...]
    all: tuple[str, ...]


@dataclass(frozen=True)
class Dialect:
    """One level's way of writing. `words` cuts a line into what a reader compares.

    `defined` is None where names are registers, used again and again for other values: there they
    cannot be followed, and are not compared.
    """

    title: str
    noise: re.Pattern[str]
    cut: Callable[[str], str]
    numbered: re.Pattern[str]
    words: re.Pattern[str]
    named: re.Pattern[str] | None = None
    defined: Callable[[str], str] | None = None
    ends: re.Pattern[str] | None = None  # from here on the text is bookkeeping

    def lines(self, text: str) -> list[str]:
        """The lines of a text, as their numbers count them; blanks stand where it is noise."""
        end = self.ends.search(text) if self.ends else None
        own = text[: end.start()] if end else text
        return ["" if self.noise.match(line) else self.shown(line) for line in own.split("\n")]

    def shown(self, line: str) -> str:
        """A line without locations and comments, which a reader of a difference has no use for."""
        return line if len(line) > MAX_KEYED else self.cut(line).rstrip()

    def key(self, line: str, kernel: str = "") -> str:
        """What two lines must have in common to be the same."""
        if len(line) > MAX_KEYED:
            return line
        own = _named(kernel).sub(KERNEL, line) if kernel else line
        return " ".join(self.numbered.sub(_bare, own).split())

    def word(self, word: str) -> str:
        """A word without its number, if it is a name."""
        return self.numbered.sub(_bare, word)

    def uses(self, line: str) -> Uses:
        """The names in a line; none where they are not followed."""
        if self.named is None or self.defined is None or len(line) > MAX_KEYED:
            return Uses((), ())
        defined = self.named.findall(self.defined(line))
        return Uses(tuple(defined), tuple(self.named.findall(line)))


@functools.lru_cache(maxsize=64)
def _named(kernel: str) -> re.Pattern[str]:
    """Where a line names the kernel itself, which may well be called as an opcode is."""
    name = re.escape(kernel[:MAX_NAME])
    return re.compile(rf"(?<=@){name}\b|\b{name}(?=_param_\d|\()")


def _bare(found: re.Match[str]) -> str:
    """The kind of a name, which is what its groups hold, without its number."""
    return "".join(group for group in found.groups() if group)


def _before_equals(line: str) -> str:
    """`%x = …` defines %x; the head of a function or a block its arguments."""
    start = line.lstrip()
    if start.startswith(("tt.func", "define ", "^bb")):
        return line
    left, equals, _ = start.partition(" = ")
    return left if equals and left.startswith(("%", "#")) else ""


_PTX_DEFINITION = re.compile(
    r"\s*(?:@!?%p\d+\s+)?(?!st\b|st\.|red|bra|bar|ret|cp\.|wgmma|mbarrier|fence|\.)[\w.:]+\s+"
    r"(\{[^}]*\}|[^,;]*)"
)


def _first_operand(line: str) -> str:
    """PTX writes its results first, several of them in braces."""
    found = _PTX_DEFINITION.match(line)
    return found[1] if found else ""


# Untrusted lines: every pattern here takes time in proportion to the line, whatever it holds.
_MLIR_LOCATION = re.compile(r" ?\bloc\((?:[^()]|\([^()]*\))*\)")  # `loc(callsite(#loc1 at #loc2))`
_LLVM_METADATA = re.compile(r",? ![\w.]+ !\d+")


def _without_locations(line: str) -> str:
    return _MLIR_LOCATION.sub("", line)


def _without_metadata(line: str) -> str:
    return _LLVM_METADATA.sub("", line.partition("; preds = ")[0])


def _without_comment(line: str) -> str:
    return line.partition("//")[0]


def _instruction(line: str) -> str:
    """`/*0040*/ MOV R1, R2`: nvdisasm's blanks, semicolon and encoding left out."""
    address, end, rest = line.partition(" ;")[0].partition("*/")
    return f"{address.strip()}{end} {rest.strip()}" if end else address


_MLIR = Dialect(
    title="",
    noise=re.compile(r"#loc\d* = loc\(|\s*$"),
    cut=_without_locations,
    numbered=re.compile(r"(%)[\w$.-]+|(#[A-Za-z_]+)\d+(?![\w.])|(\^bb)\d+"),
    words=re.compile(r"[%#^][\w$.-]+|\w+|\s+|.", re.DOTALL),
    named=re.compile(r"%[\w$.-]+|#[A-Za-z_]+\d*(?![\w.])"),
    defined=_before_equals,
)

DIALECTS: dict[str, Dialect] = {
    "ttir": replace(_MLIR, title="TTIR"),
    "ttgir": replace(_MLIR, title="TTGIR"),
    "llir": Dialect(
        title="LLIR",
        noise=re.compile(r"!|\s*$|; ModuleID|source_filename"),
        cut=_without_metadata,
        numbered=re.compile(r"(%)[\w$.-]+|( #)\d+|^()[\w$.-]+(?=:)"),
        words=re.compile(r"%[\w$.-]+|\w+|\s+|.", re.DOTALL),
        named=re.compile(r"%[\w$.-]+"),
        defined=_before_equals,
    ),
    "ptx": Dialect(
        title="PTX",
        noise=re.compile(r"\s*(?:\.loc\b|\.file\b|//|$)|\$L__(?:tmp|func_)\w*:"),
        cut=_without_comment,
        numbered=re.compile(r"(%[a-z]+)(?:\d+|<\d+>)(?!\w)|(\$L__BB)\d+_\d+"),
        words=re.compile(r"[%$]\w+(?:<\d+>)?|\w+|\s+|.", re.DOTALL),
        named=re.compile(r"%[a-z]+\d+"),
        defined=_first_operand,
        ends=re.compile(r"^\t\.section\t\.debug_", re.MULTILINE),
    ),
    "sass": Dialect(
        title="SASS",
        noise=re.compile(r"(?!\s*/\*[0-9a-f]{4,}\*/|\.L_x_\d+:)"),
        cut=_instruction,
        numbered=re.compile(
            r"^/\*()[0-9a-f]{4,}\*/|\b(U?R|U?P|SB|B)\d+(?:\.reuse)?\b|(?:`\()?(\.L_x_)\d+\)?"
        ),
        words=re.compile(r"/\*[0-9a-f]{4,}\*/|`\(\.L_x_\d+\)|[\w.]+|\s+|.", re.DOTALL),
    ),
    "asm": Dialect(
        title="Assembly",
        noise=re.compile(
            r"\s*$|\s*\.(?!L|long|quad|byte|value|float|double|zero|string|ascii)|\.L(?:VL|FB|FE|B[BE])\d"
            r"|\.L(?:text|cold|COLD|HOT|func)\w*:"
        ),
        cut=str.rstrip,
        numbered=re.compile(
            r"(%)(?:r\d+[dwb]?|[re]?(?:[abcd]x|[sd]i|[sb]p)|[abcd][lh]|(?:si|di|sp|bp)l)\b"
            r"|(%[xyz]mm)\d+|(%k)\d\b|(\.LC?)\d+"
        ),
        words=re.compile(r"%\w+|\.LC?\d+|\w+|\s+|.", re.DOTALL),
        ends=re.compile(r"^[ \t]*\.section[ \t]+\.debug_|^\.Letext0:", re.MULTILINE),
    ),
}
