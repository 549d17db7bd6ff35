"""Simulation: planted faults at their lines, clean look-alikes, and candidates that misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels.catalog import load_all, load_problem
from runner.analysis import simulate_station
from runner.analysis.findings import Analysis, AnalysisVerdict, FindingKind, Severity
from runner.analysis.interpreter_launch import _sample, _thin
from runner.analysis.simulate import SimulationSpec, simulate
from runner.analysis.simulate_request import small_case
from runner.processes import Cancelled
from runner.spec import SpecError
from tests.analysis.simulate.corpus import Entry, entries

ROOT = Path(__file__).resolve().parents[2]
ADD = """
import torch
import triton
import triton.language as tl

@triton.jit
def add(a_ptr, b_ptr, c_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    a = tl.load(a_ptr + i, mask=i < N)
    b = tl.load(b_ptr + i, mask=i < N)
    BODY
    tl.store(c_ptr + i, a + b, mask=i < N)

def run(a, b):
    BEFORE
    c = torch.empty_like(a)
    add[(triton.cdiv(a.numel(), 8192),)](a, b, c, a.numel(), BLOCK=8192)
    AFTER
    return c
"""
BODY_LINE = ADD.splitlines().index("    BODY") + 1


@pytest.fixture(autouse=True, scope="module")
def _station() -> Iterator[None]:
    yield
    simulate_station.stop()


def variant(body: str = "pass", before: str = "pass", after: str = "pass") -> str:
    return ADD.replace("BODY", body).replace("BEFORE", before).replace("AFTER", after)


def simulated(source: str, deadline_s: float = 60.0) -> Analysis:
    return simulate(SimulationSpec("vector_add", source, deadline_s=deadline_s))


def named(entry: Entry) -> str:
    return entry.path.stem


@pytest.mark.parametrize("entry", entries("faulty"), ids=named)
def test_a_planted_fault_is_found_at_its_line(entry: Entry) -> None:
    found = entry.simulate()
    assert found.verdict is AnalysisVerdict.review, found.reason
    assert not entry.missed(found), found.findings
    assert not entry.false_alarms(found), found.findings


@pytest.mark.parametrize("entry", entries("clean"), ids=named)
def test_a_clean_look_alike_raises_no_alarm(entry: Entry) -> None:
    found = entry.simulate()
    assert found.verdict is AnalysisVerdict.clean, (found.reason, found.findings)
    assert found.findings == ()


def test_the_corpus_is_large_enough_and_every_fault_has_a_line() -> None:
    faulty, clean = entries("faulty"), entries("clean")
    assert len(faulty) >= 18
    assert len(clean) >= 18
    for entry in faulty:
        lines = entry.path.read_text().splitlines()
        assert all(lines[line - 1].strip() for _, line in entry.expected)


@pytest.mark.parametrize("slug", [problem.slug for problem in load_all()])
def test_the_kernels_of_the_zoo_are_clean_on_the_small_case(slug: str) -> None:
    for kernel in load_problem(slug).kernels("triton"):
        found = simulate(SimulationSpec(slug, kernel.source, file=kernel.path.name))
        assert found.verdict is AnalysisVerdict.clean, (found.reason, found.findings)


@pytest.mark.parametrize("memory", [[], ["--plain"]], ids=["watched", "plain"])
def test_every_operation_gives_what_numpy_and_torch_give(memory: list[str]) -> None:
    argv = [sys.executable, "-W", "ignore", "-m", "tests.analysis.simulate.operations", *memory]
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(rows) > 600
    assert [row for row in rows if row[2]] == []


def test_a_finding_names_program_tensor_index_and_value() -> None:
    source = variant("tl.store(c_ptr + i, a, mask=i <= N)")
    (found,) = [
        each for each in simulated(source).findings if each.kind is FindingKind.out_of_bounds_write
    ]
    assert found.source is not None
    assert found.source.line == BODY_LINE
    assert found.kernel == "add"
    assert found.evidence["tensor"] == "c_ptr"
    assert found.evidence["index"] == "1000003"
    assert found.evidence["program"] == [122, 0, 0]
    assert found.evidence["value"] == "nan"  # the lane's load was masked: anything may be there
    assert (found.evidence["lanes"], found.evidence["programs"]) == (1, 1)


def test_a_hint_that_does_not_hold_is_a_warning_and_an_assumption_an_error() -> None:
    hinted = simulated(variant("a = a + tl.multiple_of(N, 16) * 0"))
    assumed = simulated(variant("tl.assume(N % 16 == 0)"))
    for found, severity in ((hinted, Severity.warning), (assumed, Severity.error)):
        (finding,) = found.findings
        assert (finding.kind, finding.severity) == (FindingKind.false_assumption, severity)
        assert finding.source is not None
        assert finding.source.line == BODY_LINE


def test_an_assertion_that_fails_is_an_error_of_the_run() -> None:
    (finding,) = simulated(variant("tl.device_assert(N % 16 == 0, 'odd')")).findings
    assert finding.kind is FindingKind.run_error
    assert "odd" in finding.message


def test_an_input_changed_outside_of_any_kernel_is_a_write_to_an_input() -> None:
    kinds = {each.kind for each in simulated(variant(after="a.add_(1)")).findings}
    assert FindingKind.input_write in kinds


def test_scope_says_what_was_covered_and_that_nothing_is_certified() -> None:
    found = simulated(variant())
    assert found.verdict is AnalysisVerdict.clean
    assert "certifies nothing" in found.reason
    text = " ".join(found.scope)
    assert "odd-1000003-bf16" in text
    assert "all 123 programs" in text


@pytest.mark.parametrize(
    ("body", "operation"),
    [
        (
            "a = tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [a.to(tl.float32)],"
            " dtype=tl.float32, is_pure=True, pack=1)",
            "inline_asm_elementwise",
        ),
        ("a = tl.map_elementwise(other, a)", "map_elementwise"),
    ],
)
def test_an_unknown_operation_is_incomplete_with_its_name_and_line(
    body: str, operation: str
) -> None:
    source = variant(body).replace("def run", "@triton.jit\ndef other(x):\n    return x\n\ndef run")
    found = simulated(source)
    assert found.verdict is AnalysisVerdict.incomplete
    (finding,) = found.findings
    assert finding.kind is FindingKind.unsupported_operation
    assert operation in finding.message
    assert finding.source is not None
    assert finding.source.line == BODY_LINE


def test_a_gluon_kernel_is_incomplete() -> None:
    source = variant().replace("@triton.jit", "from triton.experimental import gluon\n@gluon.jit")
    found = simulated(source)
    assert found.verdict is AnalysisVerdict.incomplete
    assert "add" in found.reason


def test_a_program_that_waits_for_a_later_one_is_incomplete_at_its_line() -> None:
    body = "\n    ".join(
        [
            "while tl.load(c_ptr + N - 1, volatile=True) != 0:",
            "    pass",
        ]
    )
    found = simulated(variant(body))
    assert found.verdict is AnalysisVerdict.incomplete
    waiting = [each for each in found.findings if "waits for another program" in each.message]
    assert waiting[0].source is not None
    assert waiting[0].source.line == BODY_LINE


def test_a_hanging_candidate_is_stopped_at_its_deadline() -> None:
    found = simulated(variant(before="while True: pass"), deadline_s=2.0)
    assert found.verdict is AnalysisVerdict.incomplete
    assert found.findings[0].kind is FindingKind.deadline_passed


def test_a_cancelled_simulation_ends_at_once() -> None:
    cancel = threading.Event()
    threading.Timer(1.0, cancel.set).start()
    started = time.monotonic()
    with pytest.raises(Cancelled):
        simulate(SimulationSpec("vector_add", variant(before="while True: pass")), cancel=cancel)
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("end", ["import os; os._exit(0)", "import os; os.kill(os.getpid(), 9)"])
def test_a_candidate_that_ends_its_process_is_an_error(end: str) -> None:
    found = simulated(variant(before=end))
    assert found.verdict is AnalysisVerdict.error
    assert found.findings[0].kind is FindingKind.run_error


def test_an_exception_names_its_line() -> None:
    source = variant(before="raise ValueError('no')")
    found = simulated(source)
    assert found.verdict is AnalysisVerdict.error
    assert found.findings[0].source is not None
    assert "raise" in source.splitlines()[found.findings[0].source.line - 1]


def test_a_source_that_is_no_module_is_an_error_at_its_line() -> None:
    found = simulated("import torch\ndef run(a, b:\n")
    assert found.verdict is AnalysisVerdict.error
    assert found.findings[0].kind is FindingKind.compile_error
    assert found.findings[0].source is not None
    assert found.findings[0].source.line == 2


def test_a_run_without_a_kernel_is_incomplete() -> None:
    found = simulated("def run(a, b):\n    return a + b\n")
    assert found.verdict is AnalysisVerdict.incomplete
    assert found.findings[0].kind is FindingKind.not_captured


def test_an_answer_of_another_dtype_is_a_mismatch() -> None:
    found = simulated(variant(after="c = c.float()"))
    assert found.verdict is AnalysisVerdict.review
    assert found.findings[0].kind is FindingKind.oracle_mismatch
    assert "float32" in found.findings[0].message


def test_a_candidate_that_blinds_its_instruments_is_still_compared_with_the_oracle() -> None:
    blind = "import sys; sys.modules['runner.analysis.memory_sightings'].Sightings.add = len"
    found = simulated(variant("a = a * 2", before=blind))
    assert found.verdict in (AnalysisVerdict.review, AnalysisVerdict.error)


@pytest.mark.parametrize(
    "answer",
    [
        "{'all': 'well'}",
        "dataclasses.replace(real(*a), stored_at=())",
        "dataclasses.replace(real(*a), launches=[{'kernel': '', 'grid': [0, 0, 0], 'programs': 1,"
        " 'simulated': 1}])",
        "dataclasses.replace(real(*a), sightings=[{'kind': 'all_well'}])",
    ],
)
def test_a_forged_report_is_an_error(answer: str) -> None:
    child = "child = sys.modules['runner.analysis.simulate_child']; real = child._report"
    forge = f"import dataclasses, sys; {child}; child._report = lambda *a: {answer}"
    found = simulated(variant(before=forge))
    assert found.verdict is AnalysisVerdict.error
    assert "forged" in found.reason


def test_a_large_grid_is_sampled_evenly_with_both_ends() -> None:
    grid = (100, 1000, 10)
    programs = _sample(grid, 4096)
    assert len(programs) == 4096
    assert programs[0] == (0, 0, 0)
    assert programs[-1] == (99, 999, 9)
    thinned = _thin(programs, 100)
    assert 90 <= len(thinned) <= 100
    assert thinned[-1] == (99, 999, 9)
    assert thinned == sorted(thinned)


def test_the_small_case_is_an_odd_one_of_a_gpu_set() -> None:
    for problem in load_all():
        case = small_case(problem)
        assert any(name.startswith("gpu") for name in case.sets)
        assert not case.scored


def test_what_cannot_be_simulated_is_refused() -> None:
    with pytest.raises(SpecError, match="no case"):
        simulate(SimulationSpec("vector_add", "", case="nowhere"))
    with pytest.raises(SpecError, match="MiB of tensors"):
        simulate(SimulationSpec("vector_add", "", case="256Mi-fp32"))
    with pytest.raises(SpecError, match="not simulated"):
        simulate(SimulationSpec("vector_add", "", language="cpp"))


def test_the_command_line_prints_one_document(tmp_path: Path) -> None:
    file = tmp_path / "shifted.py"
    file.write_text(variant("tl.store(c_ptr + i + 1, a, mask=i < N)"))
    argv = [sys.executable, "-m", "runner", "simulate", "vector_add", str(file), "--json"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["verdict"] == "review"
    kinds = {each["kind"] for each in document["findings"]}
    assert {"out_of_bounds_write", "write_race"} <= kinds
    source = document["findings"][0]["source"]
    assert source == {"file": "shifted.py", "line": BODY_LINE}
