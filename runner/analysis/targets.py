"""The NVIDIA targets a kernel can be analysed for, and what one multiprocessor of each offers.

Owns the table of limits. Numbers per multiprocessor and block are those of the CUDA C++ Programming
Guide, "Technical specifications per compute capability"; multiprocessors, memory and L2 are those
of one common board, which is an assumption and is named wherever it enters a number.
"""

from __future__ import annotations

from dataclasses import dataclass

WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
REGISTERS = 65536  # 32-bit, of a multiprocessor and of a block
REGISTER_UNIT = 256  # registers are given to a warp in pieces of this many
PARTITIONS = 4  # each with its own quarter of the registers
SHARED_UNIT = 128  # bytes
SHARED_RESERVED = 1024  # bytes of every block that the system keeps for itself
KIB = 1024
STATIC_SHARED = 48 * KIB  # what a block may have without asking for more
DEFAULT = "sm_90"


@dataclass(frozen=True)
class Target:
    """One compute capability; sizes in bytes. `board` names where the assumed figures are from."""

    name: str
    capability: int
    warps_per_multiprocessor: int
    blocks_per_multiprocessor: int
    shared_per_multiprocessor: int
    shared_per_block: int
    board: str
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int


TARGETS = {
    target.name: target
    for target in (
        Target("sm_80", 80, 64, 32, 164 * KIB, 163 * KIB, "A100 SXM", 108, 80 << 30, 40 << 20),
        Target("sm_86", 86, 48, 16, 100 * KIB, 99 * KIB, "A40", 84, 48 << 30, 6 << 20),
        Target("sm_89", 89, 48, 24, 100 * KIB, 99 * KIB, "L40S", 142, 48 << 30, 96 << 20),
        Target("sm_90", 90, 64, 32, 228 * KIB, 227 * KIB, "H200 SXM", 132, 141 << 30, 50 << 20),
        Target("sm_100", 100, 64, 32, 228 * KIB, 227 * KIB, "B200", 148, 180 << 30, 126 << 20),
        Target("sm_120", 120, 48, 24, 100 * KIB, 99 * KIB, "RTX 5090", 170, 32 << 30, 96 << 20),
    )
}
