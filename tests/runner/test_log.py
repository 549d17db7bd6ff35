"""The folder log: what is written is read back, and a torn line is no event."""

from __future__ import annotations

import hashlib
from pathlib import Path

from runner.events import Event, MessagePayload, RunPayload, RunStatus
from runner.log import FileLog
from runner.spec import RunSpec
from tests.runner.fakes import RUN


def test_a_folder_log_gives_back_events_and_artifacts_and_goes_on(tmp_path: Path) -> None:
    heard: list[Event] = []
    log = FileLog(tmp_path, RUN, watch=heard.append)
    log.emit(RunPayload(RunStatus.running, "started", RunSpec("softmax")))
    log.emit(MessagePayload("search", "µ"), {"note": b"bytes"})
    again = FileLog(tmp_path, RUN)
    third = again.emit(MessagePayload("search", "more"))
    assert third.seq == 3
    assert list(again.history()) == [*heard, third]
    assert again.read(hashlib.sha256(b"bytes").hexdigest()) == b"bytes"


def test_half_a_line_of_a_killed_writer_is_dropped(tmp_path: Path) -> None:
    log = FileLog(tmp_path, RUN)
    first = log.emit(RunPayload(RunStatus.running, "started", RunSpec("softmax")))
    with (tmp_path / "events.jsonl").open("ab") as file:
        file.write(b'{"artifacts":[],"at":"2026')
    again = FileLog(tmp_path, RUN)
    second = again.emit(MessagePayload("search", "goes on"))
    assert list(again.history()) == [first, second]
