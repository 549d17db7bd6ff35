"""An analysis as the command line prints it for people."""

from __future__ import annotations

from typing import Any

from runner import console
from runner.analysis.findings import (
    Analysis,
    AnalysisVerdict,
    Finding,
    FindingKind,
    Severity,
    Source,
)


def printed(evidence: dict[str, Any], message: str = "waits for ever") -> list[str]:
    source = Source("ring.py", 2)
    finding = Finding(FindingKind.deadlock, Severity.error, message, source, evidence=evidence)
    found = Analysis(AnalysisVerdict.review, "", (finding,), ("all interleavings",))
    return console.analysis(found, "import it\nwait(full)\n").splitlines()


def test_a_counterexample_is_printed_with_its_steps_and_the_values_it_assumes() -> None:
    steps = ["1. default, line 1: initialises full", "2. default, line 2: waits, for ever"]
    lines = printed({"steps": steps, "assumed": {"steps": 16, "program_id(x)": 0}})
    assert lines == [
        "review",
        "",
        "ring.py:2: error: waits for ever [deadlock]",
        "    wait(full)",
        "    Follow the steps: one arrival or one initial phase is missing.",
        "    with steps = 16, program_id(x) = 0",
        "      1. default, line 1: initialises full",
        "      2. default, line 2: waits, for ever",
        "",
        "scope: all interleavings",
    ]


def test_of_a_long_counterexample_the_beginning_and_the_end_are_printed() -> None:
    lines = printed({"steps": [f"{n}. step" for n in range(1, 113)], "assumed": {}})
    shown = [line.strip() for line in lines if "step" in line and "Follow" not in line]
    assert shown[0] == "1. step"
    assert shown[8] == "… 80 steps more, which --json has …"
    assert shown[-1] == "112. step"
    assert len(shown) == 33


def test_a_finding_without_a_counterexample_is_printed_as_before() -> None:
    assert "    with" not in "\n".join(printed({"registers": 255}))


def test_what_a_terminal_would_take_for_a_command_is_not_printed() -> None:
    assert "ring.py:2: error: [2Jgone [deadlock]" in printed({}, "\x1b[2Jgone\x07")
