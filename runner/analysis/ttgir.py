"""Reads TTGIR: the dots of a kernel, and which addresses its global accesses touch.

Integer and pointer arithmetic is worked out for program 0 with the launch's own arguments, loops on
their first trip. A value that depends on memory, or an operation that is not known here, stays
unknown, and so does what is computed from it. Needs numpy, not Triton.
"""

from __future__ import annotations

import contextlib
import math
import re
from dataclasses import dataclass, field

import numpy as np

from runner.analysis import layouts
from runner.analysis.arithmetic import MAX_ELEMENTS, OPERATIONS, Pointer, Value, constant
from runner.analysis.levels import Level
from runner.analysis.targets import WARP_SIZE

MAX_LINE = 20_000  # characters; longer ones are not read
SECTOR = 32  # bytes: what global memory is fetched in
MAX_VECTOR = 16  # bytes a thread accesses at once


@dataclass(frozen=True)
class Dot:
    """One product of tiles; `matrix` says whether it runs on tensor cores."""

    line: int | None
    dtype: str
    m: int
    n: int
    k: int
    matrix: bool
    ieee: bool


@dataclass(frozen=True)
class Access:
    """One global access of a whole warp, first trip of its loops.

    `sectors` is how many 32-byte sectors the widest possible instruction touches, `ideal` how many
    would hold the same bytes; both 0 where the addresses are not known. `bytes_per_thread` counts
    the whole tile.
    """

    line: int | None
    operation: str
    argument: str
    bytes_per_thread: int
    sectors: int = 0
    ideal: int = 0


@dataclass
class Module:
    """What was read from one TTGIR text."""

    dots: list[Dot] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)


_WARPS = re.compile(r'"ttg\.num-warps" = (\d+)')
_ARGUMENT = re.compile(r"%(\w+): (!tt\.ptr<[^>]*>|!tt\.tensordesc<[^{]*?>>|i\d+)")
_OPERATION = re.compile(
    r'^\s*(?:(%[\w#.-]+)(?::\d+)?(?:, %[\w.-]+)* = )?"?([a-z_0-9]+\.[\w.]+)"?(.*)$'
)
_OPERAND = re.compile(r"%[\w.-]+(?:#\d+)?")
_ITERATED = re.compile(r"(%[\w.-]+) = (%[\w.-]+(?:#\d+)?)")
_TENSOR = re.compile(r"tensor<((?:\d+x)+)(!tt\.ptr<[^>]*>|[a-z]\w*)(?:, (.*))?>$")
_BITS = re.compile(r"(\d+)$")


def read(level: Level, scalars: dict[str, int], grid: tuple[int, int, int]) -> Module:
    """`scalars` are the integer arguments of the launch by name, `grid` its programs."""
    reader = _Reader(level, scalars, grid)
    for number, text in enumerate(level.text.splitlines(), 1):
        reader.line(number, text)
    return reader.module


class _Reader:
    """One pass from top to bottom: names are reused in sibling regions, the latest one counts."""

    def __init__(self, level: Level, scalars: dict[str, int], grid: tuple[int, int, int]) -> None:
        self.level, self.scalars, self.grid = level, scalars, grid
        self.module = Module()
        self.values: dict[str, Value] = {}
        self.encodings: dict[str, tuple[str, str]] = {}
        self.warps = 4
        self.number = 0

    def line(self, number: int, text: str) -> None:
        """A form of an operation that is not known here leaves its result unknown."""
        self.number = number
        if len(text) > MAX_LINE:
            return
        with contextlib.suppress(ValueError, IndexError, TypeError, KeyError, ArithmeticError):
            self._line(text)

    def _line(self, text: str) -> None:
        text = re.sub(r"\s*loc\((?:#loc\d*|unknown)\)\s*$", "", text)
        if encoding := layouts.DEFINITION.match(text):
            self.encodings[encoding[1]] = (encoding[2], encoding[3])
        elif text.startswith("module"):
            self.warps = int(found[1]) if (found := _WARPS.search(text)) else self.warps
        elif "tt.func" in text:
            self._arguments(text)
        elif operation := _OPERATION.match(text):
            self._operation(operation[1], operation[2], operation[3])

    def _arguments(self, text: str) -> None:
        for name, kind in _ARGUMENT.findall(text):
            value: Value = self.scalars.get(name)
            if kind.startswith("!tt.ptr"):
                value = Pointer(name, 0, _bytes(kind))
            self.values[f"%{name}"] = value

    def _operation(self, result: str | None, name: str, rest: str) -> None:
        operands = [self.values.get(operand) for operand in _OPERAND.findall(_before_type(rest))]
        if name in ("tt.dot", "ttng.warp_group_dot", "ttng.tc_gen5_mma"):
            self._dot(name, rest)
        elif name in _ACCESSES:
            self._access(_ACCESSES[name], rest, operands)
        elif name == "scf.for":
            self._loop(result, rest)
            return
        if result is not None:
            self.values[result] = None  # also when it cannot be worked out
            self.values[result] = self._evaluate(name, rest, operands)

    def _loop(self, result: str | None, rest: str) -> None:
        """Induction variable and carried values hold what they hold on the first trip."""
        pairs = _ITERATED.findall(rest)
        initial = [self.values.get(value) for _, value in pairs]
        for (name, _), value in zip(pairs, initial, strict=True):
            self.values[name] = value
        for position, value in enumerate(initial[1:]):
            self.values[f"{result}#{position}"] = value
        if len(initial) == 2 and result is not None:
            self.values[result] = initial[1]

    def _evaluate(self, name: str, rest: str, operands: list[Value]) -> Value:
        if name == "arith.constant":
            return constant(rest)
        if name == "tt.get_program_id":
            return 0
        if name == "tt.get_num_programs":
            return self.grid["xyz".index(rest.split()[0])]
        shape = _shape(rest.rpartition("->")[2] if "->" in rest else rest.rpartition(" : ")[2])
        if shape and math.prod(shape) > MAX_ELEMENTS:
            return None
        if name == "tt.make_range":
            start, end = (int(layouts.field(rf"{key} = (\d+)", rest)) for key in ("start", "end"))
            return np.arange(start, min(end, start + MAX_ELEMENTS), dtype=np.int64)
        if any(operand is None for operand in operands) or name not in OPERATIONS:
            return None
        return OPERATIONS[name](rest, shape, operands)

    def _dot(self, name: str, rest: str) -> None:
        shapes = re.findall(r"(?:tensor|memdesc)<((?:\d+x)+)(\w+)", rest.rpartition(" : ")[2])
        if len(shapes) < 2:
            return
        (first, dtype), (second, _) = shapes[0], shapes[1]
        m, k = _sizes(first)[-2:]
        encoding = re.search(r"#(\w+)(?:>|, )*[^#]*$", rest)
        kind = self.encodings.get(encoding[1], ("", ""))[0] if encoding else ""
        matrix = name != "tt.dot" or kind.endswith("_mma")
        ieee = dtype == "f32" and "inputPrecision = tf32" not in rest and name == "tt.dot"
        line = self.level.lines.get(self.number)
        self.module.dots.append(Dot(line, dtype, m, _sizes(second)[-1], k, matrix, ieee))

    def _access(self, operation: str, rest: str, operands: list[Value]) -> None:
        types = _before_arrow(rest.rpartition(" : ")[2])
        found = _TENSOR.search(_first_type(types))
        if found is None or "!tt.ptr" not in found[2]:
            return  # a scalar: one address for all lanes
        shape, size = _sizes(found[1]), _bytes(found[2])
        threads = self.warps * WARP_SIZE
        per_thread = max(size, math.prod(shape) * size // threads)
        line = self.level.lines.get(self.number)
        pointer = operands[0] if operands else None
        argument = pointer.base if isinstance(pointer, Pointer) else ""
        sectors = ideal = 0
        lanes = layouts.lanes(found[3] or "", self.encodings, shape, max(1, MAX_VECTOR // size))
        if isinstance(pointer, Pointer) and lanes is not None:
            mask = self._mask(operation, rest)
            sectors, ideal = _sectors(pointer, shape, lanes, mask)
        self.module.accesses.append(Access(line, operation, argument, per_thread, sectors, ideal))

    def _mask(self, operation: str, rest: str) -> Value:
        """The operand that is a mask: after the pointer of a load, after the value of a store."""
        operands = _OPERAND.findall(_before_type(rest))
        if operation == "async copy":
            named = re.search(r" mask (%[\w.-]+(?:#\d+)?)", rest)
            return self.values.get(named[1]) if named else None
        position = {"load": 1, "store": 2}.get(operation, len(operands))
        return self.values.get(operands[position]) if len(operands) > position else None


_ACCESSES = {
    "tt.load": "load",
    "tt.store": "store",
    "tt.atomic_rmw": "atomic",
    "tt.atomic_cas": "atomic",
    "ttg.async_copy_global_to_local": "async copy",
}


def _sectors(
    pointer: Pointer, shape: tuple[int, ...], lanes: np.ndarray, mask: Value
) -> tuple[int, int]:
    """How many sectors the warp's first instruction touches, and how many would do."""
    index = tuple(np.moveaxis(lanes, 2, 0))
    offset = np.broadcast_to(np.asarray(pointer.offset), shape)[index]
    if isinstance(mask, np.ndarray):
        offset = offset[np.broadcast_to(mask, shape)[index].astype(bool)]
    addresses = np.unique(offset) * pointer.size
    if not addresses.size:
        return 0, 0
    sectors = np.unique(addresses // SECTOR).size
    return int(sectors), -(-addresses.size * pointer.size // SECTOR)


def _before_type(rest: str) -> str:
    """Operands and attributes without the types behind the last ` : `."""
    return rest.rpartition(" : ")[0] or rest


def _before_arrow(types: str) -> str:
    return types.partition(" -> ")[0]


def _first_type(types: str) -> str:
    """The first of several types: commas inside brackets do not end it."""
    depth = 0
    for position, letter in enumerate(types):
        if letter in "<{[(":
            depth += 1
        elif letter in ">}])":
            depth -= 1
        elif letter == "," and depth == 0:
            return types[:position]
    return types.strip()


def _shape(kind: str) -> tuple[int, ...]:
    found = re.search(r"tensor<((?:\d+x)+)", kind)
    return _sizes(found[1]) if found else ()


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.rstrip("x").split("x"))


def _bytes(kind: str) -> int:
    """Of an element type such as `bf16`, `i1` or `!tt.ptr<f32>`; 1 for the small floats."""
    inner = kind.removeprefix("!tt.ptr<").rstrip(">").partition(",")[0]
    bits = _BITS.search(inner) if inner[:2] != "f8" else None
    return max(1, int(bits[1]) // 8) if bits else 1
