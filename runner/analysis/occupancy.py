"""How many blocks fit a multiprocessor, what limits them, and what the next step up would take.

The rules are those of NVIDIA's occupancy calculator: registers are given to warps in units of 256
from four partitions, shared memory in units of 128 bytes with 1 KiB reserved for each block. The
multiprocessor is assumed to give all its configurable memory to shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from runner.analysis.targets import (
    KIB,
    MAX_THREADS_PER_BLOCK,
    PARTITIONS,
    REGISTER_UNIT,
    REGISTERS,
    SHARED_RESERVED,
    SHARED_UNIT,
    WARP_SIZE,
    Target,
)


@dataclass(frozen=True)
class Usage:
    """What a block asks for: registers of a thread, threads, bytes of shared memory."""

    registers: int
    threads: int
    shared_bytes: int

    @property
    def warps(self) -> int:
        return -(-self.threads // WARP_SIZE)


@dataclass(frozen=True)
class Occupancy:
    """`limits` are the blocks that each resource would allow; `limiter` names the tightest ones.

    `next_step` says what another block would take, or is empty where no change of registers or
    shared memory gives one.
    """

    blocks: int
    warps: int
    fraction: float
    limiter: str
    limits: dict[str, int]
    next_step: str


def occupancy(target: Target, usage: Usage) -> Occupancy:
    """Blocks a multiprocessor of the target holds at once; 0 when one does not fit."""
    limits = {
        "registers": _by_registers(usage),
        "shared memory": _by_shared_memory(target, usage),
        "warps": target.warps_per_multiprocessor // usage.warps,
        "blocks": target.blocks_per_multiprocessor,
    }
    if usage.threads > MAX_THREADS_PER_BLOCK:
        limits["warps"] = 0
    blocks = min(limits.values())
    tightest = [name for name, limit in limits.items() if limit == blocks]
    return Occupancy(
        blocks=blocks,
        warps=blocks * usage.warps,
        fraction=blocks * usage.warps / target.warps_per_multiprocessor,
        limiter=" and ".join(tightest),
        limits=limits,
        next_step=_next_step(target, usage, blocks, limits),
    )


def _by_registers(usage: Usage) -> int:
    per_warp = _rounded(max(1, usage.registers) * WARP_SIZE, REGISTER_UNIT)
    if per_warp * _rounded(usage.warps, PARTITIONS) > REGISTERS:
        return 0
    return REGISTERS // PARTITIONS // per_warp * PARTITIONS // usage.warps


def _by_shared_memory(target: Target, usage: Usage) -> int:
    if usage.shared_bytes > target.shared_per_block:
        return 0
    block = _rounded(usage.shared_bytes + SHARED_RESERVED, SHARED_UNIT)
    return target.shared_per_multiprocessor // block


def _next_step(target: Target, usage: Usage, blocks: int, limits: dict[str, int]) -> str:
    """In words what must shrink for one block more; empty where warps or blocks are used up."""
    wanted = blocks + 1
    if min(limits["warps"], limits["blocks"]) < wanted:
        return ""
    steps = []
    if limits["registers"] < wanted:
        enough = _registers_for(usage, wanted)
        if enough is None:
            return ""
        steps.append(f"{usage.registers - enough} registers a thread")
    if limits["shared memory"] < wanted:
        room = target.shared_per_multiprocessor // wanted // SHARED_UNIT * SHARED_UNIT
        room = min(room - SHARED_RESERVED, target.shared_per_block)
        if room < 0:
            return ""
        steps.append(f"{_size(usage.shared_bytes - room)} of shared memory")
    what = "would give another block on each multiprocessor" if blocks else "and it fits"
    return f"{' and '.join(steps)} less {what}"


def _registers_for(usage: Usage, blocks: int) -> int | None:
    """The most registers a thread may have for that many blocks."""
    for registers in range(usage.registers - 1, 0, -1):
        if _by_registers(Usage(registers, usage.threads, 0)) >= blocks:
            return registers
    return None


def _rounded(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _size(count: int) -> str:
    return f"{count / KIB:.1f} KiB" if count >= KIB else f"{count} bytes"
