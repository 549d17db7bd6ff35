"""The roofline page of a run: which candidates it holds, what it says, how it is downloaded.

The geometry is `roofline`'s; this module reads the run's rows and writes its data out.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields
from functools import cached_property
from typing import Any

from django.urls import reverse

from runner.events import RunStatus
from runner.results import DeviceInfo, Verdict
from webapp.review.roofline import Measured, Point, Roofline, roofs_for
from webapp.runs.models import Run

MAX_ROWS = 200  # of the table; the downloads have all


class RunRoofline:
    def __init__(self, run: Run, case: str) -> None:
        self.run = run
        self.asked_case = case

    @cached_property
    def measured(self) -> list[Measured]:
        passed = self.run.candidates.filter(verdict=Verdict.passed.value).select_related("parent")
        rows = passed.defer("parent__evaluation_text", "parent__reason", "parent__idea")
        found = []
        for row in rows:
            if evaluation := row.evaluation:
                parent = row.parent.number if row.parent else None
                found.append(Measured(row.number, parent, evaluation))
        return found

    @cached_property
    def device(self) -> DeviceInfo | None:
        """The device of the latest passing evaluation."""
        return self.measured[-1].evaluation.device if self.measured else None

    @cached_property
    def other_devices(self) -> list[str]:
        """A run that moved: points of these devices stand under another device's roofs."""
        uuid = self.device.uuid if self.device else ""
        models = (m.evaluation.device for m in self.measured if m.evaluation.device.uuid != uuid)
        return list(dict.fromkeys(device.model for device in models))

    @cached_property
    def chart(self) -> Roofline:
        roofline = Roofline(roofs_for(self.run, self.device), self.measured)
        if self.asked_case in roofline.cases:
            return Roofline(roofline.roofs, self.measured, self.asked_case)
        return roofline

    @property
    def rows(self) -> list[Point]:
        return self.chart.points[:MAX_ROWS]

    @property
    def more_rows(self) -> int:
        return max(0, len(self.chart.points) - MAX_ROWS)

    @property
    def waiting(self) -> bool:
        return not RunStatus(self.run.status).ended

    @property
    def file_name(self) -> str:
        return f"{self.run.problem}-run-{self.run.pk}-roofline"

    @property
    def script_data(self) -> dict[str, Any]:
        numbers = {point.candidate for point in self.chart.points}
        links = {n: reverse("candidate", args=[self.run.pk, n]) for n in sorted(numbers)}
        return {**self.chart.as_json(), "links": links}

    def json_text(self) -> str:
        about = {"run": self.run.uuid, "problem": self.run.problem, "points_are": "useful work"}
        return json.dumps({**about, **self.chart.as_json()}, ensure_ascii=False, indent=1)

    def csv_text(self) -> str:
        """One line for each point; units are in the names of the columns."""
        names = [field.name for field in fields(Point) if field.name != "ci95"]
        file = io.StringIO()
        writer = csv.writer(file)
        writer.writerow([*names, "ci95_low", "ci95_high"])
        for point in self.chart.points:
            writer.writerow([*(_cell(getattr(point, name)) for name in names), *point.ci95])
        return file.getvalue()


def _cell(value: Any) -> Any:
    """Names come from archives: a spreadsheet must not take one for a formula."""
    return f"'{value}" if isinstance(value, str) and value[:1] in tuple("=+-@\t\r") else value
