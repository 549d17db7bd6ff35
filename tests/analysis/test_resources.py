"""Kernels with a planted fault and kernels that look like them; occupancy against known answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from kernels.catalog import Case, Problem, ZooKernel, load_all
from runner.analysis.analyze import AnalysisSpec, Report, analyze
from runner.analysis.findings import (
    GLOSSARY,
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    document,
)
from runner.analysis.occupancy import Usage, occupancy
from runner.analysis.targets import TARGETS

CORPUS = Path(__file__).parent / "resources"
HEADER = re.compile(r'"""(\w+) (\S+): (\w+)\. ')
MARK = "# <- here"


@dataclass(frozen=True)
class Planted:
    """A file of the corpus: its first line names problem, case and what must be found."""

    path: Path

    @property
    def header(self) -> tuple[str, str, str]:
        found = HEADER.match(self.path.read_text())
        assert found is not None, self.path
        return found[1], found[2], found[3]

    @property
    def lines(self) -> set[int]:
        text = self.path.read_text().splitlines()
        return {number for number, line in enumerate(text, 1) if MARK in line}

    def analysed(self) -> Report:
        problem, case, _ = self.header
        source = self.path.read_text()
        return analyze(AnalysisSpec(problem, source, case=case, file=self.path.name))


def planted(folder: str) -> list[object]:
    paths = sorted((CORPUS / folder).glob("*.py"))
    assert len(paths) >= 8
    return [pytest.param(Planted(path), id=path.stem) for path in paths]


def blamed(report: Report) -> list[Finding]:
    return [each for each in report.analysis.findings if each.severity is not Severity.info]


@pytest.mark.parametrize("file", planted("faulty"))
def test_a_planted_fault_is_found_at_its_line_and_nothing_else_is(file: Planted) -> None:
    report = file.analysed()
    assert report.analysis.verdict is AnalysisVerdict.review
    found = {(each.kind.value, each.source.line) for each in blamed(report) if each.source}
    assert found == {(file.header[2], line) for line in file.lines}
    assert all(each.source and each.source.file == file.path.name for each in blamed(report))


@pytest.mark.parametrize("file", planted("clean"))
def test_a_look_alike_without_a_fault_is_clean(file: Planted) -> None:
    report = file.analysed()
    assert report.analysis.verdict is AnalysisVerdict.clean, report.analysis.reason
    assert blamed(report) == []


def zoo() -> list[object]:
    return [
        pytest.param(problem, kernel, case, id=f"{kernel.name}-{case.name}")
        for problem in load_all()
        for kernel in problem.kernels("triton")
        for case in problem.cases_in("gpu")
        if case.scored
    ]


@pytest.mark.parametrize(("problem", "kernel", "case"), zoo())
def test_no_kernel_of_the_zoo_raises_an_alarm_on_a_scored_case(
    problem: Problem, kernel: ZooKernel, case: Case
) -> None:
    report = analyze(AnalysisSpec(problem.slug, kernel.source, case=case.name))
    assert report.analysis.verdict is AnalysisVerdict.clean, report.analysis.reason
    (kernel_found,) = report.analysis.resources["kernels"]
    assert kernel_found["registers"] > 0
    assert kernel_found["spill_store_bytes"] == 0
    assert kernel_found["occupancy"]["blocks"] >= 1
    assert kernel_found["waves"][0]["blocks"] >= 1


def test_an_odd_size_of_the_case_is_a_note_not_the_kernels_fault() -> None:
    """N = 777: no row but the first starts at a multiple of 16 bytes."""
    (rmsnorm,) = (each for each in load_all() if each.slug == "rmsnorm")
    source = rmsnorm.kernels("triton")[0].source
    report = analyze(AnalysisSpec("rmsnorm", source, case="odd-1023x777-bf16"))
    assert report.analysis.verdict is AnalysisVerdict.clean
    notes = {each.kind for each in report.analysis.findings}
    assert notes == {FindingKind.narrow_access}
    assert all("N = 777" in each.message for each in report.analysis.findings)


def test_full_precision_is_a_note_at_the_line_of_the_dot() -> None:
    file = Planted(CORPUS / "clean" / "full_precision.py")
    (note,) = file.analysed().analysis.findings
    assert note.kind is FindingKind.fp32_fallback
    assert note.source is not None
    assert "tl.dot" in file.path.read_text().splitlines()[note.source.line - 1]


# (target, registers, threads, shared bytes) → blocks, limiter; worked out with the vendor's rules:
# registers of a warp rounded up to 256, a quarter of 65536 in each partition, 1 KiB reserved.
KNOWN = [
    ("sm_90", 32, 256, 0, 8, "registers and warps"),
    ("sm_90", 33, 256, 0, 6, "registers"),  # 40 registers a thread: 48 warps, 6 blocks of 8
    ("sm_90", 255, 1024, 0, 0, "registers"),
    ("sm_90", 64, 32, 0, 32, "registers and blocks"),
    ("sm_90", 40, 128, 100 * 1024, 2, "shared memory"),
    ("sm_90", 40, 128, 113 * 1024, 2, "shared memory"),  # 2 × (113 + 1) KiB is all there is
    ("sm_90", 40, 128, 113 * 1024 + 1, 1, "shared memory"),
    ("sm_90", 40, 128, 228 * 1024, 0, "shared memory"),
    ("sm_86", 16, 32, 0, 16, "blocks"),
    ("sm_89", 16, 64, 0, 24, "warps and blocks"),
    ("sm_80", 128, 96, 0, 5, "registers"),  # 4 warps a partition: 16 warps, 5 blocks of 3
    ("sm_120", 40, 512, 0, 3, "registers and warps"),
]


@pytest.mark.parametrize(("target", "registers", "threads", "shared", "blocks", "limiter"), KNOWN)
def test_occupancy_follows_the_vendors_rules(
    target: str, registers: int, threads: int, shared: int, blocks: int, limiter: str
) -> None:
    found = occupancy(TARGETS[target], Usage(registers, threads, shared))
    assert (found.blocks, found.limiter) == (blocks, limiter)
    assert found.warps == blocks * threads // 32


@pytest.mark.parametrize(("target", "registers", "threads", "shared"), [each[:4] for each in KNOWN])
def test_the_next_step_is_the_smallest_that_gives_another_block(
    target: str, registers: int, threads: int, shared: int
) -> None:
    """What is named suffices, and one register less than named does not."""
    found = occupancy(TARGETS[target], Usage(registers, threads, shared))
    step = re.search(r"(\d+) registers a thread", found.next_step)
    if step is None:
        assert "registers" not in found.limiter or "blocks" in found.limiter or found.fraction == 1
        return
    fewer = Usage(registers - int(step[1]), threads, 0)
    assert occupancy(TARGETS[target], fewer).blocks > found.blocks
    almost = Usage(fewer.registers + 1, threads, 0)
    assert occupancy(TARGETS[target], almost).blocks <= found.blocks


def test_every_kind_is_explained() -> None:
    assert set(GLOSSARY) == set(FindingKind)
    for meaning in GLOSSARY.values():
        assert meaning.meaning.endswith(".")
        assert meaning.remedy.endswith(".")


def test_a_verdict_cannot_contradict_its_findings() -> None:
    warning = Finding(FindingKind.tail_wave, Severity.warning, "a tail")
    note = Finding(FindingKind.tail_wave, Severity.info, "a small tail")
    assert Analysis(AnalysisVerdict.clean, "", (note,), ()).findings == (note,)
    for verdict, findings in (("clean", (warning,)), ("review", (note,)), ("incomplete", ())):
        with pytest.raises(ValueError, match=r"not clean|nothing to review|needs a reason"):
            Analysis(AnalysisVerdict(verdict), "", findings, ())


def test_the_document_says_how_each_finding_is_usually_fixed() -> None:
    warning = Finding(FindingKind.tail_wave, Severity.warning, "a tail")
    (found,) = document(Analysis(AnalysisVerdict.review, "", (warning,), ()))["findings"]
    assert found["remedy"] == GLOSSARY[FindingKind.tail_wave].remedy
