"""How a simulation says what it saw: findings from sightings, and the scope of it all."""

from __future__ import annotations

from kernels.catalog import Case
from runner import sandbox
from runner.analysis.findings import Finding, FindingKind, Severity, Source
from runner.analysis.memory_sightings import NoteKind, Sighting, SightingKind
from runner.analysis.simulate_report import Note, Report, Trouble, TroubleKind

KINDS = {
    SightingKind.out_of_bounds_read: FindingKind.out_of_bounds_read,
    SightingKind.out_of_bounds_write: FindingKind.out_of_bounds_write,
    SightingKind.uninitialised_read: FindingKind.uninitialised_read,
    SightingKind.write_race: FindingKind.write_race,
    SightingKind.lane_race: FindingKind.write_race,
    SightingKind.read_write_race: FindingKind.read_write_race,
    SightingKind.input_write: FindingKind.input_write,
    SightingKind.misaligned: FindingKind.misaligned_access,
}
NOTES = {
    NoteKind.assertion: (FindingKind.run_error, Severity.error),
    NoteKind.assumption: (FindingKind.false_assumption, Severity.error),
    NoteKind.hint: (FindingKind.false_assumption, Severity.warning),
}
TROUBLES = {
    TroubleKind.load: FindingKind.run_error,
    TroubleKind.run: FindingKind.run_error,
    TroubleKind.answer: FindingKind.oracle_mismatch,
    TroubleKind.unsupported: FindingKind.unsupported_operation,
    TroubleKind.waiting: FindingKind.unsupported_operation,
    TroubleKind.limit: FindingKind.unsupported_operation,
}


def source_at(line: int, file: str) -> Source | None:
    return Source(file, line) if line > 0 else None


def finding_of(seen: Sighting, file: str) -> Finding:
    """A sighting in words, its numbers as evidence."""
    evidence = {
        "tensor": seen.tensor,
        "index": seen.index,
        "value": seen.value,
        "program": list(seen.program),
        "lanes": seen.lanes,
        "programs": seen.programs,
    }
    if seen.other_line:
        evidence |= {"other_line": seen.other_line, "other_program": list(seen.other_program)}
    return Finding(
        KINDS[seen.kind],
        Severity.error,
        _words(seen),
        source_at(seen.line, file),
        kernel=seen.kernel,
        evidence=evidence,
    )


def note_finding(note: Note, file: str) -> Finding:
    """Something that the kernel itself takes for granted and that does not hold."""
    kind, severity = NOTES[note.kind]
    message = f"{note.text} ({note.times}×)"
    return Finding(kind, severity, message, source_at(note.line, file))


def _words(seen: Sighting) -> str:
    place = f"{seen.tensor}[{seen.index}]" if seen.tensor else f"address {seen.index}"
    value = f" (value {seen.value})" if seen.value else ""
    where = f"in program {_tuple(seen.program)}" if seen.program else "in run itself"
    lanes = "1 lane" if seen.lanes == 1 else f"{seen.lanes} lanes"
    programs = "1 program" if seen.programs == 1 else f"{seen.programs} programs"
    count = f"{lanes} in {programs}" if seen.kernel else ""
    other = f"program {_tuple(seen.other_program)} at line {seen.other_line}"
    what = {
        SightingKind.out_of_bounds_read: f"reads {place}, which no tensor holds",
        SightingKind.out_of_bounds_write: f"writes {place}{value}, which no tensor holds",
        SightingKind.uninitialised_read: f"reads {place}, which nobody has written",
        SightingKind.write_race: f"writes {place}{value}, which {other} writes too",
        SightingKind.lane_race: f"two lanes of one store write different values to {place}",
        SightingKind.read_write_race: f"{place}{value} is accessed unordered with {other}",
        SightingKind.input_write: f"writes {place}{value}: it is an input and must not change",
        SightingKind.misaligned: f"accesses {place} at an address that its size does not divide",
    }[seen.kind]
    return f"{what}, {where}" + (f" ({count})" if count else "")


def trouble_finding(trouble: Trouble, file: str) -> Finding:
    known = {
        TroubleKind.unsupported: f"the interpreter does not know {trouble.message}",
        TroubleKind.waiting: f"{trouble.message}, and programs are run one after the other here",
        TroubleKind.limit: f"not possible without a device: {trouble.message}",
    }
    message = known.get(trouble.kind, trouble.message)
    severe = trouble.kind in (TroubleKind.load, TroubleKind.run, TroubleKind.answer)
    severity = Severity.error if severe else Severity.warning
    return Finding(TROUBLES[trouble.kind], severity, message, source_at(trouble.line, file))


def scope_of(case: Case, report: Report | None, *, compared: bool = False) -> tuple[str, ...]:
    """What was covered, what was assumed, what was not looked at."""
    scope = [f"one call of run on {case.name} ({case.dtype}) in Triton's interpreter"]
    if report is not None:
        scope += [_launch_words(report, name) for name in _kernels(report)]
        scope += [f"{each}: the first configuration, others not" for each in report.tuned]
        if report.assumed:
            scope.append(f"{', '.join(report.assumed)}: answered as by a device that is assumed")
        if report.duplicates:
            words = "elements were written by several programs with equal values, which is harmless"
            scope.append(f"{report.duplicates} {words}")
        if not compared:
            scope.append("outputs were not compared with the oracle")
    scope.append(
        "not seen: shared memory and barriers inside a program, timing, what the compiler makes of"
        " it, other cases and other configurations; a tensor's bounds are those of its allocation"
    )
    scope.append("the candidate shares a process with the instruments: advice, not evidence")
    scope.append(sandbox.isolation().sentence)
    return tuple(scope)


def _kernels(report: Report) -> list[str]:
    return list(dict.fromkeys(each.kernel for each in report.launches))


def _launch_words(report: Report, kernel: str) -> str:
    launches = [each for each in report.launches if each.kernel == kernel]
    programs = sum(each.programs for each in launches)
    simulated = sum(each.simulated for each in launches)
    times = "once" if len(launches) == 1 else f"{len(launches)} times"
    if simulated == programs:
        return f"{kernel} launched {times}, all {programs} programs run"
    return f"{kernel} launched {times}, a sample of {simulated} of {programs} programs run"


def _tuple(program: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, program)) + ")"
