"""TTGIR as a tree of operations with their source lines, read from its text.

Owns the syntax: operations, regions, blocks, locations. What an operation means is not known here.

The text is read, not the module behind triton's bindings: those give no order of operations, no
attributes beyond integers, and no location of an operation without results, which is every wait,
arrive and fence. MLIR prints one operation a line, and that much is all that is relied on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from runner.analysis.findings import Source

_LIBRARY = re.compile(r"(?:^|[/\\])triton[/\\](?:language|experimental)[/\\]")
_INLINE_LOC = r'(?:unknown|#loc\d*|"[^"]*"(?:\(#loc\d*\)|:\d+:\d+)?|callsite\([^()]*\))'
_LOC = re.compile(rf"\s*\bloc\(({_INLINE_LOC})\)")
_LOC_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)$")
_RESULTS = re.compile(r"^(%[\w$.-]+(?::\d+)?(?:, %[\w$.-]+(?::\d+)?)*) = ")
_NAME = re.compile(r'^"?([a-z_]\w*\.[\w.]+)"?')
VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_BLOCK = re.compile(r"^\^(bb\d+)(?:\((.*)\))?:")
_ARGUMENT = re.compile(r"(%[\w$.-]+): ")
_REGION_OF_LAST = re.compile(r"^(default|partition\d+)(?:\(.*\))?.*\{$")


class UnreadableIR(Exception):
    """The text is not TTGIR as this module knows it."""


@dataclass
class Block:
    """Operations that run in a row; `arguments` are the names that a jump here binds."""

    label: str
    arguments: list[str] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)


@dataclass
class Region:
    """`warps` of a partition; 0 where the region says nothing of them."""

    label: str
    blocks: list[Block]
    warps: int = 0

    def ops(self) -> Iterator[Op]:
        """Every operation inside, outermost first."""
        for block in self.blocks:
            for op in block.ops:
                yield op
                for region in op.regions:
                    yield from region.ops()


@dataclass(eq=False)
class Op:
    """`body` is the text after the name and before the types; `types` is what follows ` : `.

    `operands` are all values of `body` in the order of the text, `results` one name per value.
    """

    name: str
    results: tuple[str, ...]
    body: str
    types: str
    operands: tuple[str, ...]
    regions: list[Region] = field(default_factory=list)
    loc: str = "unknown"

    def integer(self, attribute: str, default: int | None = None) -> int:
        """An integer or boolean attribute. Raises UnreadableIR where it is missing."""
        found = re.search(rf"\b{attribute} = (?:(-?\d+)|(true|false))\b", self.body)
        if found:
            return int(found[1]) if found[1] else int(found[2] == "true")
        if default is None:
            raise UnreadableIR(f"{self.name} has no {attribute}")
        return default

    def has_flag(self, attribute: str) -> bool:
        return re.search(rf"\b{attribute}\b(?! = false)", self.body) is not None


@dataclass(frozen=True)
class Parameter:
    """A parameter of a function; `divisibility` is what the launch promised of its value."""

    name: str
    type: str
    divisibility: int


@dataclass
class Function:
    """A `tt.func`; the kernel is the public one."""

    name: str
    public: bool
    parameters: list[Parameter]
    body: Region
    loc: str = "unknown"


@dataclass(frozen=True)
class Frame:
    """One level of a location: innermost first when several are listed."""

    name: str
    file: str
    line: int


@dataclass
class Module:
    """All functions, and the table behind the `#loc` of every operation."""

    functions: dict[str, Function]
    num_ctas: int
    num_warps: int
    locations: dict[str, str]

    @property
    def kernel(self) -> Function:
        for function in self.functions.values():
            if function.public:
                return function
        raise UnreadableIR("there is no public function")

    def frames(self, loc: str, name: str = "") -> list[Frame]:
        """The call stack behind a location, innermost first."""
        loc = loc.strip()
        if alias := re.fullmatch(r"#(loc\d*)", loc):
            return self.frames(self.locations.get(alias[1], "unknown"), name)
        if place := re.fullmatch(r'"([^"]*)":(\d+):\d+(?: to .*)?', loc):
            return [Frame(name, place[1], int(place[2]))]
        if call := re.fullmatch(r"callsite\((.*) at (.*)\)", loc):
            return [*self.frames(call[1], name), *self.frames(call[2])]
        if named := re.fullmatch(r'"([^"]*)"\((.*)\)', loc):
            return self.frames(named[2], named[1])
        return []

    def source(self, loc: str) -> Source | None:
        """The innermost line that is not triton's own."""
        frame = self._own(loc)
        return Source(frame.file, frame.line) if frame else None

    def label(self, loc: str) -> str:
        """The name that the candidate gave the value defined here, or nothing."""
        frame = self._own(loc)
        return frame.name if frame else ""

    def _own(self, loc: str) -> Frame | None:
        frames = self.frames(loc)
        return next((f for f in frames if not _LIBRARY.search(f.file)), None)


def read_module(text: str) -> Module:
    """The module that triton printed as `text`. Raises UnreadableIR."""
    lines = text.splitlines()
    locations = {m[1]: m[2] for line in lines if (m := _LOC_ALIAS.match(line))}
    top = _Reader(lines).read()
    holder = next((op for op in top.ops if op.name == "builtin.module"), None)
    if holder is None:
        raise UnreadableIR("there is no module")
    functions = {}
    for op in holder.regions[0].blocks[0].ops:
        if op.name == "tt.func":
            function = _function(op)
            functions[function.name] = function
    warps, ctas = (_module_number(holder, name) for name in ("num-warps", "num-ctas"))
    return Module(functions, ctas, warps, locations)


def _module_number(holder: Op, name: str) -> int:
    found = re.search(rf'"ttg\.{name}" = (\d+)', holder.body + holder.types)
    return int(found[1]) if found else 1


def _function(op: Op) -> Function:
    text = op.body + (" : " + op.types if op.types else "")
    found = re.search(r"@([\w$.]+)\(", text)
    if not found:
        raise UnreadableIR("a function without a name")
    parameters = []
    for part in re.split(r", (?=%)", text[found.end() :]):
        if head := re.match(r"(%[\w$.-]+): (\S+)", part):
            number = re.search(r"tt\.divisibility = (\d+)", part)
            parameters.append(
                Parameter(head[1], head[2].rstrip("),"), int(number[1]) if number else 1)
            )
    public = not re.search(r"\bprivate\b", text[: found.start()])
    return Function(found[1], public, parameters, op.regions[0], op.loc)


class _Reader:
    """Turns lines into blocks of operations; a stack holds the regions that are still open."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        self.root = Block("top")
        self.current = self.root
        self.open: list[tuple[Op, Block]] = []  # an operation and the block it stands in

    def read(self) -> Block:
        for raw in self.lines:
            if raw.startswith("#") or not raw.strip():
                continue
            line, loc = _without_locations(raw.strip())
            self._line(line, loc)
        if self.open:
            raise UnreadableIR(f"{self.open[-1][0].name} is not closed")
        return self.root

    def _line(self, line: str, loc: str) -> None:
        if line.startswith("}"):
            self._close(line, loc)
        elif found := _BLOCK.match(line):
            self._block(found[1], _ARGUMENT.findall(found[2] or ""))
        elif _REGION_OF_LAST.match(line) and self.current.ops:
            self._open(self.current.ops[-1], line)
        else:
            op = _op(line, loc)
            self.current.ops.append(op)
            if line.endswith("{"):
                self._open(op, line)

    def _block(self, label: str, arguments: list[str]) -> None:
        if not self.open:
            raise UnreadableIR(f"the block {label} stands nowhere")
        region = self.open[-1][0].regions[-1]
        if self.current.label == "entry" and not self.current.ops:
            self.current.label = label
            self.current.arguments = arguments  # the printed label of the first block
            return
        self.current = Block(label, arguments)
        region.blocks.append(self.current)

    def _open(self, op: Op, line: str) -> None:
        found = _REGION_OF_LAST.match(line)
        label = found[1] if found else "body"
        self.open.append((op, self.current))
        self.current = Block("entry", _region_arguments(op, line))
        warps = re.search(r"num_warps\((\d+)\)", line)
        op.regions.append(Region(label, [self.current], int(warps[1]) if warps else 0))

    def _close(self, line: str, loc: str) -> None:
        if not self.open:
            raise UnreadableIR("a brace closes nothing")
        op, outer = self.open.pop()
        self.current = outer
        rest = line[1:].strip()
        if rest.endswith("{"):  # `} else {`, `} do {`, `}, {`
            self.open.append((op, outer))
            self.current = Block("entry")
            op.regions.append(Region(rest.rstrip("{").strip(" ,("), [self.current]))
            return
        if rest:
            op.body += " " + rest
        if loc != "unknown":
            op.loc = loc


def _without_locations(line: str) -> tuple[str, str]:
    locations = _LOC.findall(line)
    last = locations[-1] if locations and line.endswith(")") else "unknown"
    return _LOC.sub("", line).rstrip(), last


def _op(line: str, loc: str) -> Op:
    results: list[str] = []
    if found := _RESULTS.match(line):
        results = _expand(found[1])
        line = line[found.end() :]
    if line.startswith("module"):
        return Op("builtin.module", (), line[len("module") :], "", (), loc=loc)
    named = _NAME.match(line)
    if not named:
        return Op(line.split("(")[0].split(" ")[0], tuple(results), line, "", (), loc=loc)
    rest = line[named.end() :]
    body, types = _split_types(rest)
    return Op(named[1], tuple(results), body, types, tuple(VALUE.findall(body)), loc=loc)


def _split_types(rest: str) -> tuple[str, str]:
    """What comes before and after the first ` : ` that no bracket encloses."""
    depth = 0
    for i, character in enumerate(rest):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and rest.startswith(" : ", i):
            return rest[:i], rest[i + 3 :]
    return rest, ""


def _expand(names: str) -> list[str]:
    """`%a:2` is `%a#0` and `%a#1`; a single result keeps its name."""
    expanded = []
    for name in names.split(", "):
        base, _, count = name.partition(":")
        expanded += [f"{base}#{i}" for i in range(int(count))] if count else [base]
    return expanded


def _region_arguments(op: Op, line: str) -> list[str]:
    """Names that a region's header binds, in order."""
    if line.startswith("partition"):
        return _ARGUMENT.findall(line)
    if op.name == "scf.for":
        carried = re.search(r"iter_args\(([^)]*)\)", line)
        names = re.findall(r"(%[\w$.-]+) = ", carried[1]) if carried else []
        return [op.operands[0], *names]
    if op.name == "scf.while":
        return re.findall(r"(%[\w$.-]+) = ", line.split("scf.while", 1)[1])
    return []
