"""Which elements of a tile the lanes of a warp hold, by TTGIR's layouts.

Blocked, linear and sliced layouts are known; those of matrix instructions are not.
"""

from __future__ import annotations

import math
import re

import numpy as np

from runner.analysis.targets import WARP_SIZE

Encodings = dict[str, tuple[str, str]]  # kind and fields by name
DEFINITION = re.compile(r"^#(\w+) = #(?:ttg|ttng)\.(\w+)<\{(.*)\}>$")
_INLINE = re.compile(r"#ttg\.(\w+)<\{(.*)\}>")


def named(encoding: str, encodings: Encodings) -> tuple[str, str]:
    """Kind and fields of `#blocked` or of one written out; empty where it is not defined."""
    if inline := _INLINE.match(encoding):
        return inline[1], inline[2]
    return encodings.get(encoding.lstrip("#").rstrip(">"), ("", ""))


def lanes(
    encoding: str, encodings: Encodings, shape: tuple[int, ...], vector: int
) -> np.ndarray | None:
    """Coordinates [lane, element, dimension] of one instruction of warp 0, `vector` wide at most.

    None for a layout that is not known; ValueError for one that cannot be read.
    """
    kind, fields = named(encoding, encodings)
    if kind == "blocked":
        return _blocked(fields, shape, vector)
    if kind == "linear":
        return _linear(fields, vector)
    if kind == "slice":
        dropped = int(field(r"dim = (\d+)", fields))
        wider = (*shape[:dropped], 1, *shape[dropped:])
        parent = lanes(field(r"parent = (#.*)$", fields), encodings, wider, vector)
        return None if parent is None else np.delete(parent, dropped, axis=2)
    return None


def _blocked(fields: str, shape: tuple[int, ...], vector: int) -> np.ndarray:
    size, threads, order = (
        _list(fields, key) for key in ("sizePerThread", "threadsPerWarp", "order")
    )
    fastest = order[0]
    elements = min(vector, size[fastest], shape[fastest])
    held = np.zeros((WARP_SIZE, elements, len(shape)), dtype=np.int64)
    rest = np.arange(WARP_SIZE)
    for dimension in order:
        held[:, :, dimension] = (rest % threads[dimension] * size[dimension])[:, None]
        rest = rest // threads[dimension]
    held[:, :, fastest] += np.arange(elements)
    result: np.ndarray = held % np.array(shape)
    return result


def _linear(fields: str, vector: int) -> np.ndarray:
    registers, lanes = (_bases(fields, key) for key in ("register", "lane"))
    used = registers[: int(math.log2(vector))]
    held = np.zeros((WARP_SIZE, 1 << len(used), len(lanes[0])), dtype=np.int64)
    for bit, base in enumerate(lanes):
        held ^= ((np.arange(WARP_SIZE) >> bit & 1)[:, None, None]) * np.array(base)
    for bit, base in enumerate(used):
        held ^= ((np.arange(1 << len(used)) >> bit & 1)[None, :, None]) * np.array(base)
    return held


def _bases(fields: str, key: str) -> list[list[int]]:
    found = field(rf"{key} = \[((?:\[[\d, ]*\](?:, )?)*)\]", fields)
    return [numbers(group) for group in re.findall(r"\[([\d, ]*)\]", found)]


def _list(fields: str, key: str) -> list[int]:
    return numbers(field(rf"{key} = \[([\d, ]+)\]", fields))


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def field(pattern: str, text: str) -> str:
    """The first group of a pattern; ValueError where it does not occur."""
    found = re.search(pattern, text)
    if found is None:
        raise ValueError(f"{pattern} does not occur in {text!r}")
    return found[1]
