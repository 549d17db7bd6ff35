"""What benchmarks do with figures: order statistics, and the file in which they are kept.

Imports nothing that a bare device host lacks.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.results import Evaluation
from runner.wire import to_json


def quantile(values: Sequence[float], fraction: float) -> float:
    """The value below which this share lies; the largest for 1.0. Raises IndexError for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def both(values: Sequence[float]) -> str:
    """p50 / p95 with one decimal, a dash where there is no value."""
    if not values:
        return "–"
    return f"{quantile(values, 0.5):.1f} / {quantile(values, 0.95):.1f}"


def circumstances(found: Evaluation) -> dict[str, Any]:
    """When, where and with what: a figure without them is worth nothing. Call it at the start."""
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": to_json(found.device),
        "versions": found.versions,
        "isolation": found.isolation,
        "load_average_1min": os.getloadavg()[0],
        "cores": len(os.sched_getaffinity(0)),
    }


def write(path: Path, document: dict[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
