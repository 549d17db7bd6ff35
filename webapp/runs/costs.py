"""What a run will cost in time, from evaluations measured before; it never guesses.

Only evaluations of the same problem, device and case set count, and imported ones do not: their
device is another machine.
"""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass

from webapp.runs.models import Candidate

RECENT = 50  # evaluations; older ones tell of an older machine


@dataclass(frozen=True)
class Cost:
    """`seconds` is the median of `measured` evaluations; None when there are none yet."""

    measured: int
    seconds: float | None
    slowest: float | None

    def of(self, evaluations: int) -> float | None:
        return None if self.seconds is None else evaluations * self.seconds


def cost(problem: str, device: str, case_set: str) -> Cost:
    rows = Candidate.objects.filter(
        run__problem=problem,
        run__device=device,
        run__imported=False,
        run__spec_text__contains=f'"case_set":{json.dumps(case_set)}',
    ).exclude(evaluation_text="")
    texts = rows.order_by("-pk").values_list("evaluation_text", flat=True)[:RECENT]
    walls = [wall for text in texts if (wall := json.loads(text)["wall_s"]) > 0]
    if not walls:
        return Cost(0, None, None)
    return Cost(len(walls), statistics.median(walls), max(walls))
