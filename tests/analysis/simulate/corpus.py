"""The files of the corpus and what their first lines say. Simulates a file; judges nothing.

The first line of a file is `faulty: PROBLEM · expect: KIND@LINE, KIND@LINE` or `clean: PROBLEM`,
and may go on with `· case: NAME`; the second says what the file is about. In a faulty file every
finding named must be there at its line, and no other kind but the wrong result that follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runner.analysis.findings import Analysis, AnalysisVerdict, FindingKind
from runner.analysis.simulate import SimulationSpec, simulate

FOLDER = Path(__file__).parent
Expected = frozenset[tuple[FindingKind, int]]


@dataclass(frozen=True)
class Entry:
    """One file: what it claims to be, and what must be found in it."""

    path: Path
    problem: str
    expected: Expected
    case: str | None

    @classmethod
    def of(cls, path: Path) -> Entry:
        """Raises ValueError for a first line that does not follow the format."""
        first = path.read_text(encoding="utf-8").partition("\n")[0]
        head, *rest = first.removeprefix("# ").split(" · ")
        kind, _, problem = head.partition(": ")
        options = dict(part.split(": ", 1) for part in rest)
        expected = [each.split("@") for each in options.pop("expect", "").split(", ") if each]
        case = options.pop("case", None)
        if options or kind != path.parent.name or (kind == "faulty") != bool(expected):
            raise ValueError(f"{path.name}: {first}")
        wanted = frozenset((FindingKind(name), int(line)) for name, line in expected)
        return cls(path, problem, wanted, case)

    def simulate(self) -> Analysis:
        source = self.path.read_text(encoding="utf-8")
        spec = SimulationSpec(self.problem, source, case=self.case, file=self.path.name)
        return simulate(spec)

    def missed(self, found: Analysis) -> Expected:
        """What was planted and not found at its line."""
        return self.expected - findings(found)

    def false_alarms(self, found: Analysis) -> Expected:
        """What was found and not planted: in a clean file everything."""
        kinds = {kind for kind, _ in self.expected}
        if self.expected:
            kinds.add(FindingKind.oracle_mismatch)
        return frozenset(each for each in findings(found) if each[0] not in kinds)

    def right(self, found: Analysis) -> bool:
        wanted = AnalysisVerdict.review if self.expected else AnalysisVerdict.clean
        return found.verdict is wanted and not self.missed(found) and not self.false_alarms(found)


def findings(found: Analysis) -> Expected:
    return frozenset((each.kind, each.source.line if each.source else 0) for each in found.findings)


def entries(kind: str) -> list[Entry]:
    """Every file of `faulty` or `clean`, by name."""
    return [Entry.of(path) for path in sorted((FOLDER / kind).glob("*.py"))]
