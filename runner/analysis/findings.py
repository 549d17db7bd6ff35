"""The words of an analysis: verdict, findings with their source line, and what each kind means.

Owns the closed set of finding kinds and their glossary. It examines nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runner.wire import to_json


class AnalysisVerdict(StrEnum):
    """How an analysis ended. `incomplete` is never a pass: something was not looked at.

    `clean`: all that `scope` promises was looked at and nothing is wrong. `review`: there is a
    warning or an error among the findings. `error`: the candidate itself fails, so that there was
    nothing to analyse. A defect of ours is an exception, never a verdict.
    """

    clean = "clean"
    review = "review"
    incomplete = "incomplete"
    error = "error"


class Severity(StrEnum):
    """`error`: the kernel is wrong. `warning`: it is slow or fragile. `info`: worth knowing."""

    info = "info"
    warning = "warning"
    error = "error"


class FindingKind(StrEnum):
    """What can be found. The set is closed; GLOSSARY explains every one of them."""

    out_of_bounds_read = "out_of_bounds_read"
    out_of_bounds_write = "out_of_bounds_write"
    input_write = "input_write"
    misaligned_access = "misaligned_access"
    uninitialised_read = "uninitialised_read"
    write_race = "write_race"
    read_write_race = "read_write_race"
    oracle_mismatch = "oracle_mismatch"
    false_assumption = "false_assumption"
    register_spill = "register_spill"
    local_memory = "local_memory"
    low_occupancy = "low_occupancy"
    does_not_fit = "does_not_fit"
    tail_wave = "tail_wave"
    narrow_access = "narrow_access"
    uncoalesced_access = "uncoalesced_access"
    no_matrix_instructions = "no_matrix_instructions"
    older_matrix_instructions = "older_matrix_instructions"
    fp32_fallback = "fp32_fallback"
    deadlock = "deadlock"
    arrival_mismatch = "arrival_mismatch"
    phase_overtaken = "phase_overtaken"
    read_before_arrival = "read_before_arrival"
    missing_proxy_fence = "missing_proxy_fence"
    barrier_lifetime = "barrier_lifetime"
    compile_error = "compile_error"
    run_error = "run_error"
    deadline_passed = "deadline_passed"
    not_captured = "not_captured"
    missing_tool = "missing_tool"
    unsupported_operation = "unsupported_operation"


@dataclass(frozen=True)
class Meaning:
    """`meaning` says what was seen, `remedy` what usually fixes it; one sentence each."""

    meaning: str
    remedy: str


_K = FindingKind
GLOSSARY: dict[FindingKind, Meaning] = {
    _K.out_of_bounds_read: Meaning(
        "An unmasked lane reads outside its tensor, or a slot beyond its ring of shared memory.",
        "Mask the load with the tensor's true size; wrap the index of a ring at its length.",
    ),
    _K.out_of_bounds_write: Meaning(
        "An unmasked lane writes outside every tensor that was passed to the kernel.",
        "Mask the store with the output's true size.",
    ),
    _K.input_write: Meaning(
        "The candidate writes into a tensor that the contract gives it as an input.",
        "Write into an output or into a buffer of the candidate's own.",
    ),
    _K.misaligned_access: Meaning(
        "An access lies at an address that its width does not divide, where the device stops.",
        "Keep offsets multiples of the width, or access narrower elements.",
    ),
    _K.uninitialised_read: Meaning(
        "A lane reads memory that nobody has written.",
        "Initialise the buffer, or order the launch that writes it before this one.",
    ),
    _K.write_race: Meaning(
        "Two programs write one address and neither does so atomically.",
        "Give each program its own elements, or use an atomic.",
    ),
    _K.read_write_race: Meaning(
        "One program reads what another program of the same launch writes.",
        "Split the kernel at that point into two launches, or synchronise with atomics.",
    ),
    _K.oracle_mismatch: Meaning(
        "An element of the output differs from the float64 answer by more than the tolerance.",
        "Follow the first wrong element back to the program and line that wrote it.",
    ),
    _K.false_assumption: Meaning(
        "The compiler is told something of divisibility, contiguity or size that is not so here.",
        "Drop the hint, or launch a kernel without it where the case does not keep it.",
    ),
    _K.register_spill: Meaning(
        "The compiler ran out of registers and moves values to local memory and back.",
        "Use a smaller tile or more warps, or shorten how long large values stay alive.",
    ),
    _K.local_memory: Meaning(
        "A thread keeps an array in local memory because it is indexed by a run-time value.",
        "Index with compile-time values, for example by unrolling the loop.",
    ),
    _K.low_occupancy: Meaning(
        "One resource lets so few warps stay on a multiprocessor that latency cannot be hidden.",
        "Lower the limiting resource to the next step that the finding names.",
    ),
    _K.does_not_fit: Meaning(
        "One block asks for more registers, threads or shared memory than the target has.",
        "Use a smaller tile or fewer pipeline stages.",
    ),
    _K.tail_wave: Meaning(
        "The last wave of blocks leaves most multiprocessors idle for a large part of the launch.",
        "Choose a tile that divides the work evenly, or a persistent grid.",
    ),
    _K.narrow_access: Meaning(
        "Global memory is accessed in pieces narrower than the elements of a thread would allow.",
        "Make offsets provably contiguous and aligned: tl.multiple_of, strides divisible by 16.",
    ),
    _K.uncoalesced_access: Meaning(
        "Neighbouring lanes access addresses that do not neighbour, so whole sectors go unused.",
        "Let the fastest index of the tile run along the contiguous dimension of the tensor.",
    ),
    _K.no_matrix_instructions: Meaning(
        "A dot product runs on the ordinary arithmetic units instead of the tensor cores.",
        "Use a dtype and a tile the target's tensor cores take, at least 16 in each dimension.",
    ),
    _K.older_matrix_instructions: Meaning(
        "A dot product uses warp-level matrix instructions where the target has faster ones.",
        "Let operands come from shared memory in a layout that warp-group instructions take.",
    ),
    _K.fp32_fallback: Meaning(
        "A dot of fp32 operands is computed by FFMA because IEEE precision was asked for.",
        "Allow input_precision='tf32' or 'tf32x3' if the tolerance permits.",
    ),
    _K.deadlock: Meaning(
        "Every partition waits for a barrier that nobody will complete.",
        "Follow the steps: one arrival or one initial phase is missing.",
    ),
    _K.arrival_mismatch: Meaning(
        "A barrier's phase gets fewer or more arrivals or bytes than it was set up for.",
        "Match the count of mbarrier.init and the bytes of expect with what really arrives.",
    ),
    _K.phase_overtaken: Meaning(
        "A slot is overwritten, or a wait passes on a stale phase, before its consumer is done.",
        "Wait for the consumer's barrier, and flip the phase once per trip around the ring.",
    ),
    _K.read_before_arrival: Meaning(
        "A slot is read before the copy that fills it is known to be complete.",
        "Wait on the barrier that the copy completes, with the phase of this trip.",
    ),
    _K.missing_proxy_fence: Meaning(
        "Stores or cp.async fill shared memory that TMA or wgmma reads without a proxy fence.",
        "Call fence_async_shared between the write's completion and the asynchronous read.",
    ),
    _K.barrier_lifetime: Meaning(
        "A barrier is used before it is initialised or after it is invalidated.",
        "Initialise before any partition starts; invalidate after the last wait of all of them.",
    ),
    _K.compile_error: Meaning(
        "The candidate or one of its kernels does not compile.",
        "Read the compiler's message at the line named.",
    ),
    _K.run_error: Meaning(
        "The candidate's run raised, exited or crashed, or an assertion of a kernel fails.",
        "Run it on the inputs of this case and follow the message.",
    ),
    _K.deadline_passed: Meaning(
        "The candidate was stopped at the deadline of the analysis.",
        "Compile fewer or smaller kernels; look for a loop that does not end.",
    ),
    _K.not_captured: Meaning(
        "A launch, or all of them, escaped the capture, so its kernel was not analysed.",
        "Launch from run's own thread and through the ordinary kernel[grid](...) call.",
    ),
    _K.missing_tool: Meaning(
        "A tool of this language is not on this machine.",
        "Install it, or analyse on a machine that has it.",
    ),
    _K.unsupported_operation: Meaning(
        "The kernel uses an operation that this analysis does not understand.",
        "Judge that part by evaluation on the device.",
    ),
}


@dataclass(frozen=True)
class Source:
    """A line of the candidate's own file; lines count from 1."""

    file: str
    line: int


@dataclass(frozen=True)
class Finding:
    """One thing seen. `level` is where it was read: ttgir, ptx, sass, …; `evidence` its numbers."""

    kind: FindingKind
    severity: Severity
    message: str
    source: Source | None = None
    level: str = ""
    kernel: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Analysis:
    """What one analysis says of one candidate on one case.

    `resources` are numbers as plain JSON (one entry per kernel where there are kernels); `scope`
    are sentences that say what was covered, what was assumed, and what was not looked at.
    """

    verdict: AnalysisVerdict
    reason: str
    findings: tuple[Finding, ...]
    scope: tuple[str, ...]
    resources: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        blamed = any(finding.severity is not Severity.info for finding in self.findings)
        if self.verdict is AnalysisVerdict.clean and blamed:
            raise ValueError("an analysis with a warning or an error is not clean")
        if self.verdict is AnalysisVerdict.review and not blamed:
            raise ValueError("there is nothing to review without a warning or an error")
        unexplained = self.verdict in (AnalysisVerdict.incomplete, AnalysisVerdict.error)
        if unexplained and not self.reason:
            raise ValueError(f"{self.verdict.value} needs a reason")


class Blamed(Exception):
    """The candidate ended the analysis; `finding` says how, `verdict` what that means."""

    def __init__(self, verdict: AnalysisVerdict, finding: Finding) -> None:
        super().__init__(finding.message)
        self.verdict, self.finding = verdict, finding


def verdict_of(findings: Iterable[Finding]) -> AnalysisVerdict:
    """Of an analysis that looked at all it promised: review if anything is amiss, else clean."""
    if any(finding.severity is not Severity.info for finding in findings):
        return AnalysisVerdict.review
    return AnalysisVerdict.clean


def document(analysis: Analysis) -> dict[str, Any]:
    """The JSON document of `runner analyze` and `runner simulate`, each finding with its remedy."""
    found: dict[str, Any] = to_json(analysis)
    for finding in found["findings"]:
        finding["remedy"] = GLOSSARY[FindingKind(finding["kind"])].remedy
    return found
