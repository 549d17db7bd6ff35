"""Which numbers are worth a word: findings from the resources of one kernel.

Each says what it costs; the glossary says what usually fixes it. A kernel with nothing wrong gets
no word: a threshold below stands for a cost that a person would act on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from kernels.catalog import Case
from runner.analysis.findings import Finding, FindingKind, Severity, Source
from runner.analysis.resources import GlobalAccess, KernelResources, Wave
from runner.analysis.targets import KIB, TARGETS, WARP_SIZE
from runner.analysis.ttgir import MAX_VECTOR

FEW_WARPS = 0.25  # of what a multiprocessor holds
ENOUGH_IN_FLIGHT = 32 * KIB  # bytes: 4.8 TB/s · 0.8 µs over the 132 multiprocessors of an H200
POOR_SECTORS = 2.0  # sectors per sector of useful bytes; at 2 a neighbour may still use the rest
MUCH_SPILLED = 64  # bytes a thread, outside loops: 16 values
BUSY = 0.7  # share of the device that a whole launch keeps busy
FEW_WAVES = 4  # beyond, a tail is a small part
TENSOR_ROWS = 64  # rows of a tile that a warp group's matrix instruction takes
TENSOR_INTENSITY = 50  # FLOP per byte; ordinary arithmetic of an H200 keeps up with memory to 14
ALIGNED = 16  # Triton learns of an integer argument whether it is a multiple of this


def advise(found: KernelResources, file: str) -> list[Finding]:
    """The findings of one kernel, worst first, in the order of source lines."""
    rules: tuple[Callable[[KernelResources], Iterator[Finding]], ...] = (
        _does_not_fit,
        _spills,
        _local_memory,
        _dots,
        _narrow,
        _uncoalesced,
        _occupancy,
        _waves,
    )
    findings = [finding for rule in rules for finding in rule(found)]
    order = list(reversed(Severity))
    placed = [_placed(finding, found.kernel, file) for finding in findings]
    return sorted(
        placed,
        key=lambda each: (order.index(each.severity), each.source.line if each.source else 0),
    )


def advise_case(case: Case, found: Sequence[KernelResources], file: str) -> list[Finding]:
    """What only the whole case shows: much arithmetic in 16 bits, and no tensor core in sight."""
    intensity = case.flops / case.bytes_moved
    if case.dtype not in ("bf16", "fp16") or intensity < TENSOR_INTENSITY or not found:
        return []
    if any(kernel.matrix or kernel.dots for kernel in found):
        return []
    busiest = max(found, key=lambda kernel: kernel.mix.get("fp32", 0) + kernel.mix.get("fp16", 0))
    message = (
        f"{case.name} is {intensity:.0f} FLOP per byte in {case.dtype}, and no kernel uses tensor"
        f" cores: {busiest.kernel} computes with ordinary arithmetic"
    )
    finding = _word(
        FindingKind.no_matrix_instructions,
        Severity.warning,
        message,
        busiest.arithmetic_line or busiest.line,
        "sass",
        {"flops": case.flops, "bytes": case.bytes_moved},
    )
    return [_placed(finding, busiest.kernel, file)]


def _word(
    kind: FindingKind,
    severity: Severity,
    message: str,
    line: int | None,
    level: str,
    evidence: dict[str, Any],
) -> Finding:
    """A finding that does not know yet whose it is."""
    source = None if line is None else Source("", line)
    return Finding(kind, severity, message, source, level, evidence=evidence)


def _placed(finding: Finding, kernel: str, file: str) -> Finding:
    source = finding.source and Source(file, finding.source.line)
    return replace(finding, kernel=kernel, source=source)


def _does_not_fit(found: KernelResources) -> Iterator[Finding]:
    if found.occupancy.blocks:
        return
    limiter = found.occupancy.limiter
    shared = found.static_shared_bytes + found.dynamic_shared_bytes
    asked = {
        "registers": f"{found.registers} registers × {found.threads} threads",
        "shared memory": f"{shared / KIB:.1f} KiB of shared memory; "
        f"{found.target} gives {TARGETS[found.target].shared_per_block / KIB:.0f} KiB",
        "warps": f"{found.threads} threads",
    }
    words = " and ".join(text for name, text in asked.items() if name in limiter)
    message = f"{found.kernel} cannot start: a block asks for {words}. {_step(found)}"
    evidence = {"registers": found.registers, "shared_bytes": shared, "threads": found.threads}
    yield _word(
        FindingKind.does_not_fit, Severity.error, message.strip(), found.line, "sass", evidence
    )


def _spills(found: KernelResources) -> Iterator[Finding]:
    """Tied to the line with most local traffic, loops first; a few outside loops cost nothing."""
    if not found.spilled:
        return
    worst = max(
        found.local, key=lambda each: (each.in_loop, each.loads + each.stores), default=None
    )
    loop = any(each.in_loop for each in found.local)
    where = "in a loop" if loop else "outside loops"
    message = (
        f"{found.kernel} spills: {found.spill_store_bytes} bytes stored and"
        f" {found.spill_load_bytes} loaded again per thread, {where},"
        f" with {found.registers} registers in use"
    )
    evidence = {
        "store_bytes": found.spill_store_bytes,
        "load_bytes": found.spill_load_bytes,
        "registers": found.registers,
        "in_loop": loop,
    }
    much = found.spill_store_bytes >= MUCH_SPILLED
    severity = Severity.warning if loop or much else Severity.info
    line = worst.line if worst else found.line
    yield _word(FindingKind.register_spill, severity, message, line, "sass", evidence)


def _local_memory(found: KernelResources) -> Iterator[Finding]:
    if found.spilled:
        return
    for each in found.local:
        accesses = each.loads + each.stores
        words = "access" if accesses == 1 else "accesses"
        message = f"{accesses} {words} to local memory without a spill: an array on the stack"
        evidence = {"loads": each.loads, "stores": each.stores, "stack_bytes": found.stack_bytes}
        yield _word(
            FindingKind.local_memory, Severity.warning, message, each.line, "sass", evidence
        )


def _dots(found: KernelResources) -> Iterator[Finding]:
    for dot in dict.fromkeys(found.dots):
        tile = f"{dot.m}×{dot.n}×{dot.k} {dot.dtype}"
        evidence = {"dtype": dot.dtype, "m": dot.m, "n": dot.n, "k": dot.k}
        if not dot.matrix and dot.ieee:
            message = f"the {tile} product runs on FFMA: fp32 in full precision has no tensor cores"
            kind, severity = FindingKind.fp32_fallback, Severity.info
        elif not dot.matrix and dot.dtype != "f64":
            message = f"the {tile} product runs on ordinary arithmetic, not on tensor cores"
            kind, severity = FindingKind.no_matrix_instructions, Severity.warning
        elif dot.matrix and _older(found, dot.m):
            message = (
                f"the {tile} product runs on warp-level HMMA; {found.target} reaches its peak only"
                " with warp-group instructions"
            )
            kind, severity = FindingKind.older_matrix_instructions, Severity.warning
        else:
            continue
        yield _word(kind, severity, message, dot.line, "ttgir", evidence)


def _older(found: KernelResources, rows: int) -> bool:
    """sm_90 has HGMMA and sm_100 tcgen05, for tiles from 64 rows; sm_120 has neither."""
    newer = found.target in ("sm_90", "sm_100") and rows >= TENSOR_ROWS
    narrow = any(name.startswith(("HMMA", "IMMA", "QMMA")) for name in found.matrix)
    return newer and narrow and not _warp_group(found)


def _warp_group(found: KernelResources) -> bool:
    """Whether it uses matrix instructions that run beside the warps that issued them."""
    return any(name.startswith(("HGMMA", "IGMMA", "QGMMA", "UTC")) for name in found.matrix)


def _narrow(found: KernelResources) -> Iterator[Finding]:
    """A note where a size of the case is odd or addresses were loaded: there is no choice."""
    for each in found.accesses:
        possible = min(MAX_VECTOR, each.bytes_per_thread)
        if each.operation == "atomic" or each.bytes_each * 2 > possible:
            continue
        if _scattered(each):
            continue  # said by uncoalesced_access, which is the cause
        times = possible // each.bytes_each
        odd = [f"{name} = {size}" for name, size in found.sizes.items() if size % ALIGNED]
        message = (
            f"{_named(each)} moves {_bytes(each.bytes_each)} per instruction where a thread has"
            f" {_bytes(each.bytes_per_thread)}: {times} times as many instructions as"
            f" {possible}-byte accesses need"
        )
        if odd:
            message += f" ({', '.join(odd)} cannot be proved aligned: no multiple of {ALIGNED})"
        elif not each.argument:
            message += " (its addresses could not be worked out)"
        severity = Severity.info if odd or not each.argument else Severity.warning
        evidence = {
            "bytes_each": each.bytes_each,
            "possible_bytes": possible,
            "instructions": each.instructions,
        }
        yield _word(
            FindingKind.narrow_access,
            severity,
            message,
            each.line,
            "sass",
            evidence,
        )


def _uncoalesced(found: KernelResources) -> Iterator[Finding]:
    for each in found.accesses:
        if not _scattered(each):
            continue
        message = (
            f"{_named(each)} touches {each.sectors} sectors of 32 bytes per warp where"
            f" {each.ideal_sectors} would hold the same bytes"
        )
        evidence = {"sectors": each.sectors, "ideal_sectors": each.ideal_sectors}
        yield _word(
            FindingKind.uncoalesced_access, Severity.warning, message, each.line, "ttgir", evidence
        )


def _scattered(each: GlobalAccess) -> bool:
    return bool(each.ideal_sectors) and each.sectors > POOR_SECTORS * each.ideal_sectors


def _named(each: GlobalAccess) -> str:
    return f"the {each.operation}{f' of {each.argument}' if each.argument else ''}"


def _bytes(count: int) -> str:
    return f"{count} byte" if count == 1 else f"{count} bytes"


def _occupancy(found: KernelResources) -> Iterator[Finding]:
    """Few warps hurt where too few bytes are on their way, and where there are blocks to add."""
    fits = found.occupancy
    in_flight = fits.warps * WARP_SIZE * _bytes_in_flight(found)
    asynchronous = bool(found.tma) or _warp_group(found)
    waiting = any(wave.waves > 1 for wave in found.waves)
    if not fits.blocks or asynchronous or not waiting or not fits.next_step:
        return
    if fits.fraction >= FEW_WARPS or in_flight >= ENOUGH_IN_FLIGHT:
        return
    message = (
        f"{fits.warps} of {TARGETS[found.target].warps_per_multiprocessor} warps fit"
        f" ({fits.fraction:.0%}), limited by {fits.limiter}, with {in_flight / KIB:.0f} KiB of"
        f" loads in flight. {_step(found)}"
    )
    evidence = {"warps": fits.warps, "limiter": fits.limiter, "bytes_in_flight": in_flight}
    yield _word(FindingKind.low_occupancy, Severity.warning, message, found.line, "sass", evidence)


def _bytes_in_flight(found: KernelResources) -> int:
    """Per thread, as if all loads of the program text were under way at once: an upper bound."""
    loads = [each for each in found.accesses if each.operation in ("load", "async copy")]
    return sum(each.bytes_each * each.instructions for each in loads)


def _step(found: KernelResources) -> str:
    step = found.occupancy.next_step
    return f"{step[0].upper()}{step[1:]}." if step else ""


def _waves(found: KernelResources) -> Iterator[Finding]:
    """A tail counts fully where arithmetic bounds; memory that idle blocks leave, others take."""
    board = TARGETS[found.target]
    for wave in found.waves:
        if not 1 < wave.waves <= FEW_WAVES or wave.filled >= BUSY:
            continue
        message = (
            f"{wave.blocks} blocks make {wave.waves:.2f} waves on {board.multiprocessors}"
            f" multiprocessors ({board.board}, assumed): the last one leaves"
            f" {1 - wave.filled:.0%} of the launch idle"
        )
        severity = Severity.warning if found.matrix else Severity.info
        evidence = _wave_evidence(wave)
        yield _word(FindingKind.tail_wave, severity, message, wave.line, "sass", evidence)


def _wave_evidence(wave: Wave) -> dict[str, float | int]:
    return {"blocks": wave.blocks, "waves": round(wave.waves, 3), "filled": round(wave.filled, 3)}
