"""The longest common subsequence of two sequences: the fewest lines that must be called changed.

difflib takes the longest equal block first. In unrolled code, where most lines look alike, that may
lie far off the diagonal and leave everything else unmatched. Here nothing is lost, at the price of
time that grows with the product of the lengths; `window` bounds it.
"""

from __future__ import annotations

from collections.abc import Sequence

from webapp.review.diff import Opcode

Matches = list[tuple[int, int]]  # indexes of equal elements, rising on both sides


def opcodes_of(a: Sequence[str], b: Sequence[str], window: int) -> list[Opcode]:
    """As difflib numbers them; nothing is matched with what is further away than a window."""
    matches: Matches = []
    i = j = 0
    while i < len(a) and j < len(b):
        found = _matches(a[i : i + window], b[j : j + window])
        if i + window < len(a) or j + window < len(b):
            # What lies near the far edge may have a better match beyond it: the next window's.
            found = [pair for pair in found if max(pair) < window * 3 // 4]
        matches += [(i + first, j + second) for first, second in found]
        done_a, done_b = found[-1] if found else (window // 2, window // 2)
        i, j = i + done_a + 1, j + done_b + 1
    return _between(matches, len(a), len(b))


def _matches(a: Sequence[str], b: Sequence[str]) -> Matches:
    """All of them by dynamic programming; the common ends, most of most texts, are free."""
    head = 0
    while head < min(len(a), len(b)) and a[head] == b[head]:
        head += 1
    rest_a, rest_b = a[head:], b[head:]
    found = [(head + i, head + j) for i, j in _walk(rest_a, rest_b)]
    return [*((i, i) for i in range(head)), *found]


def _walk(a: Sequence[str], b: Sequence[str]) -> Matches:
    best = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i in range(len(a) - 1, -1, -1):
        row, below, own = best[i], best[i + 1], a[i]
        for j in range(len(b) - 1, -1, -1):
            if own == b[j]:
                row[j] = below[j + 1] + 1
            else:
                row[j] = below[j] if below[j] > row[j + 1] else row[j + 1]
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        if a[i] == b[j]:
            found.append((i, j))
            i, j = i + 1, j + 1
        elif best[i + 1][j] >= best[i][j + 1]:
            i += 1
        else:
            j += 1
    return found


def _between(matches: Matches, left: int, right: int) -> list[Opcode]:
    """The equal stretches and what lies between them."""
    opcodes: list[Opcode] = []
    i = j = start_i = start_j = 0
    for k, m in [*matches, (left, right)]:
        if (k, m) == (i, j) and k < left:
            i, j = k + 1, m + 1
            continue
        if i > start_i:
            opcodes.append(("equal", start_i, i, start_j, j))
        if (k, m) != (i, j):
            opcodes.append(("replace", i, k, j, m))
        start_i, start_j, i, j = k, m, k + 1, m + 1
    return opcodes
