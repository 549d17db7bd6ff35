"""What one kernel uses: registers, memory, instructions, occupancy, and how a grid fills a device.

Owns the numbers; `advice` says which of them are worth a word. Every number names its level: ptxas'
words for registers and spills, SASS for instructions, TTGIR for tiles and addresses.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from runner.analysis import sass, ttgir
from runner.analysis.captured import CompiledKernel, Launch
from runner.analysis.levels import Levels
from runner.analysis.occupancy import Occupancy, Usage, occupancy
from runner.analysis.targets import WARP_SIZE, Target

INSTRUCTION_BYTES = 16
_REGISTERS = re.compile(r"Used (\d+) registers")
_STATIC = re.compile(r"(\d+) bytes smem")
_STACK = re.compile(r"(\d+) bytes stack frame")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_OPERATIONS = {
    "global load": "load",
    "global store": "store",
    "async copy": "async copy",
    "atomic": "atomic",
}


@dataclass(frozen=True)
class GlobalAccess:
    """The global accesses of one source line and kind.

    `bytes_each` is the width of the narrowest instruction, `instructions` how many the program text
    holds; `bytes_per_thread` what the tile gives each thread. `sectors` and `ideal_sectors` are
    those of one warp's widest instruction, 0 where the addresses are not known.
    """

    line: int | None
    operation: str
    argument: str
    bytes_each: int
    instructions: int
    in_loop: bool
    bytes_per_thread: int = 0
    sectors: int = 0
    ideal_sectors: int = 0


@dataclass(frozen=True)
class LocalAccess:
    """Loads and stores of local memory on one source line."""

    line: int | None
    loads: int
    stores: int
    in_loop: bool


@dataclass(frozen=True)
class Wave:
    """How one launch fills the device: `waves` rounds of blocks, `filled` the busy share."""

    grid: tuple[int, int, int]
    line: int | None
    blocks: int
    waves: float
    filled: float


@dataclass(frozen=True)
class KernelResources:
    """Everything counted: sizes in bytes, registers of one thread, shared memory of one block.

    `arithmetic_line` has most of the ordinary arithmetic; `sizes` are the launch's own integers.
    """

    kernel: str
    line: int | None
    target: str
    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    dynamic_shared_bytes: int
    threads: int
    num_stages: int
    num_ctas: int
    occupancy: Occupancy
    accesses: tuple[GlobalAccess, ...]
    local: tuple[LocalAccess, ...]
    dots: tuple[ttgir.Dot, ...]
    matrix: dict[str, int]
    tma: dict[str, int]
    async_copies: int
    barriers: int
    arithmetic_line: int | None
    mix: dict[str, int]
    code_bytes: int
    sizes: dict[str, int]
    waves: tuple[Wave, ...]

    @property
    def spilled(self) -> bool:
        return self.spill_store_bytes + self.spill_load_bytes > 0


def resources(
    kernel: CompiledKernel,
    levels: Levels,
    launches: tuple[Launch, ...],
    target: Target,
) -> KernelResources:
    """Counts one kernel. `launches` are those of this kernel, in order; there may be none."""
    instructions = sass.parse(levels.level("sass"))
    scalars = launches[0].scalars if launches else {}
    module = _module(kernel, levels, scalars, launches)
    registers, static = _number(_REGISTERS, kernel.ptxas), _number(_STATIC, kernel.ptxas)
    spills = _SPILLS.search(kernel.ptxas)
    usage = Usage(registers, _threads(kernel, levels), static + kernel.shared)
    fits = occupancy(target, usage)
    return KernelResources(
        kernel=kernel.name,
        line=kernel.line,
        target=target.name,
        registers=registers,
        spill_store_bytes=int(spills[1]) if spills else 0,
        spill_load_bytes=int(spills[2]) if spills else 0,
        stack_bytes=_number(_STACK, kernel.ptxas),
        static_shared_bytes=static,
        dynamic_shared_bytes=kernel.shared,
        threads=usage.threads,
        num_stages=kernel.num_stages,
        num_ctas=kernel.num_ctas,
        occupancy=fits,
        accesses=_accesses(instructions, module),
        local=_local(instructions),
        dots=tuple(module.dots),
        matrix=_count(instructions, "matrix"),
        tma=_count(instructions, "tma"),
        async_copies=sum(_count(instructions, "async copy").values()),
        barriers=sum(each.name in ("BAR", "SYNCS") for each in instructions),
        arithmetic_line=_busiest(instructions),
        mix=sass.mix(instructions),
        code_bytes=len(instructions) * INSTRUCTION_BYTES,
        sizes=scalars,
        waves=tuple(dict.fromkeys(_wave(each, kernel, fits, target) for each in launches)),
    )


def _module(
    kernel: CompiledKernel, levels: Levels, scalars: dict[str, int], launches: tuple[Launch, ...]
) -> ttgir.Module:
    """What TTGIR tells, where the language has it."""
    if not kernel.ttgir:
        return ttgir.Module()
    grid = launches[0].grid if launches else (1, 1, 1)
    return ttgir.read(levels.level("ttgir"), scalars, grid)


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0


_REQUIRED_THREADS = re.compile(r"^\.reqntid (\d+)", re.MULTILINE)


def _threads(kernel: CompiledKernel, levels: Levels) -> int:
    """As PTX demands: warp specialisation adds warps to those that the launch names."""
    found = _REQUIRED_THREADS.search(levels.level("ptx").text)
    return int(found[1]) if found else kernel.num_warps * WARP_SIZE


def _accesses(
    instructions: tuple[sass.Instruction, ...], module: ttgir.Module
) -> tuple[GlobalAccess, ...]:
    """SASS gives widths and counts, TTGIR tiles and addresses; line and kind join them."""
    tiles = {(each.line, each.operation): each for each in reversed(module.accesses)}
    groups: dict[tuple[int | None, str], list[sass.Instruction]] = {}
    for each in instructions:
        if each.kind in _OPERATIONS:
            groups.setdefault((each.line, _OPERATIONS[each.kind]), []).append(each)
    found = []
    for (line, operation), group in groups.items():
        tile = tiles.get((line, operation))
        found.append(
            GlobalAccess(
                line=line,
                operation=operation,
                argument=tile.argument if tile else "",
                bytes_each=min(each.bytes for each in group),
                instructions=len(group),
                in_loop=any(each.in_loop for each in group),
                bytes_per_thread=tile.bytes_per_thread if tile else 0,
                sectors=tile.sectors if tile else 0,
                ideal_sectors=tile.ideal if tile else 0,
            )
        )
    return tuple(found)


def _local(instructions: tuple[sass.Instruction, ...]) -> tuple[LocalAccess, ...]:
    groups: dict[int | None, list[sass.Instruction]] = {}
    for each in instructions:
        if each.kind in ("local load", "local store"):
            groups.setdefault(each.line, []).append(each)
    return tuple(
        LocalAccess(
            line=line,
            loads=sum(each.kind == "local load" for each in group),
            stores=sum(each.kind == "local store" for each in group),
            in_loop=any(each.in_loop for each in group),
        )
        for line, group in groups.items()
    )


def _count(instructions: tuple[sass.Instruction, ...], kind: str) -> dict[str, int]:
    return dict(Counter(each.opcode for each in instructions if each.kind == kind).most_common())


def _busiest(instructions: tuple[sass.Instruction, ...]) -> int | None:
    """The line with most ordinary arithmetic, loops first."""
    counts = Counter(
        (each.in_loop, each.line) for each in instructions if each.kind in ("fp32", "fp16")
    )
    if not counts:
        return None
    return max(counts, key=lambda place: (place[0], counts[place]))[1]


def _wave(launch: Launch, kernel: CompiledKernel, fits: Occupancy, target: Target) -> Wave:
    x, y, z = launch.grid
    blocks = x * y * z * kernel.num_ctas
    slots = fits.blocks * target.multiprocessors
    waves = blocks / slots if slots else 0.0
    rounds = -(-blocks // slots) if slots else 0
    return Wave(launch.grid, launch.line, blocks, waves, waves / rounds if rounds else 0.0)
