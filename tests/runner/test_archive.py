"""Run archives: the same bytes for the same run, and a clear refusal of everything else."""

from __future__ import annotations

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from runner import bundle
from runner.agents.scripted import ScriptedAgent
from runner.archive import ArchiveError, read_archive, write_archive
from runner.drive import drive
from runner.events import RunPayload, RunStatus
from runner.log import MemoryLog
from runner.spec import Budgets, RunSpec
from runner.wire import canonical, to_json
from tests.runner.fakes import RUN, FakeEvaluator, Requests, Seconds, by_first_line, make_log, only

ROOT = Path(__file__).resolve().parents[2]


def make_run() -> MemoryLog:
    log = make_log()
    spec = RunSpec("softmax", budgets=Budgets(evaluations=5))
    agent = ScriptedAgent(("// 1.2\n", "// crashed\n", "// 1.5\n"))
    evaluator = FakeEvaluator(by_first_line)
    drive(spec, log, evaluator, Requests(), clock=Seconds(), create=only(agent))
    return log


def archived(log: MemoryLog) -> bytes:
    file = io.BytesIO()
    write_archive(file, log.history(), log.read)
    return file.getvalue()


GOOD = archived(make_run())


# --- what is written -------------------------------------------------------------------------


def test_an_archive_gives_back_events_and_artifacts() -> None:
    log = make_run()
    with read_archive(io.BytesIO(archived(log))) as archive:
        archive.verify()
        assert list(archive.events) == log.events
        assert {sha: archive.read(sha) for sha in archive.manifest.artifacts} == log.artifacts
        assert archive.state.best == 3
        assert archive.manifest.run == RUN
        assert archive.manifest.status == "finished"
        assert archive.manifest.counts.candidates == 3
        assert archive.manifest.first_at == log.events[0].at


def test_reading_and_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "run.warpdeck.zip"
    path.write_bytes(GOOD)
    with read_archive(path) as archive:
        write_archive(tmp_path / "again.zip", archive.events, archive.read)
    assert (tmp_path / "again.zip").read_bytes() == GOOD


def test_the_bytes_depend_on_the_run_alone(tmp_path: Path) -> None:
    program = (
        "import sys; from tests.runner.test_archive import GOOD; sys.stdout.buffer.write(GOOD)"
    )
    environment = {**os.environ, "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True)
    assert done.stdout == GOOD


def test_a_target_that_cannot_seek_gets_the_same_bytes(tmp_path: Path) -> None:
    log = make_run()
    program = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read())"
    command = [sys.executable, "-c", program]
    with (tmp_path / "out").open("wb") as out:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out)
        assert child.stdin is not None
        write_archive(child.stdin, log.history(), log.read)
        child.stdin.close()
        assert child.wait(30) == 0
    assert (tmp_path / "out").read_bytes() == GOOD


def test_other_zip_tools_can_open_an_archive() -> None:
    with zipfile.ZipFile(io.BytesIO(GOOD)) as opened:
        assert opened.testzip() is None
        names = opened.namelist()
        assert names[:2] == ["manifest.json", "events.jsonl"]
        assert names[2:] == sorted(names[2:])
        manifest = json.loads(opened.read("manifest.json"))
        events = opened.read("events.jsonl")
    assert manifest["events_sha256"] == hashlib.sha256(events).hexdigest()
    assert manifest["format"] == 1


def test_a_failed_writing_leaves_no_file_and_no_earlier_archive_harmed(tmp_path: Path) -> None:
    log = make_run()
    path = tmp_path / "run.warpdeck.zip"
    path.write_bytes(b"earlier")
    with pytest.raises(ArchiveError, match="the stored bytes are damaged"):
        write_archive(path, log.history(), lambda sha256: b"something else")
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.warpdeck.zip"]
    assert path.read_bytes() == b"earlier"


def test_an_unfinished_run_can_be_archived() -> None:
    log = make_run()
    part = make_log(log.events[:3], log)
    with read_archive(io.BytesIO(archived(part))) as archive:
        assert archive.manifest.status == "running"
        assert archive.state.pending == (1,)


# --- what is refused -------------------------------------------------------------------------

Entry = tuple[zipfile.ZipInfo | str, bytes]


def unpacked() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(GOOD)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def packed(entries: Iterable[Entry]) -> bytes:
    """A zip of these entries, laid out as ours unless a ZipInfo says otherwise."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as made:
        for entry, content in entries:
            info = bundle.new_entry(entry) if isinstance(entry, str) else entry
            made.writestr(info, content)
    return file.getvalue()


def changed(**contents: bytes | None) -> bytes:
    """The good archive with some entries replaced, added or (None) left out; manifest kept."""
    entries: dict[str, bytes | None] = {**unpacked(), **contents}
    return packed((name, content) for name, content in entries.items() if content is not None)


def relogged(edit: Callable[[list[dict[str, Any]]], Any]) -> bytes:
    """The good archive with its events edited."""
    events = [json.loads(line) for line in unpacked()["events.jsonl"].splitlines()]
    edit(events)
    lines = "".join(canonical(event) + "\n" for event in events)
    return changed(**{"events.jsonl": lines.encode()})


def refusal(content: bytes) -> ArchiveError:
    with pytest.raises(ArchiveError) as caught, read_archive(io.BytesIO(content)) as archive:
        archive.verify()
    assert caught.value.remedy
    return caught.value


SHA256 = next(name for name in unpacked() if name.startswith("artifacts/"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not a zip file"),
        (b"hello, this is no zip at all", "is not a zip file"),
        (GOOD[:100], "is cut off"),
        (GOOD[:-1], "is cut off"),
        (GOOD[:-200], "is cut off"),
        (GOOD + b"x", "is cut off, or something was appended"),
        (b"#!/bin/sh\n" + GOOD, "is not a zip file"),
        (GOOD[:30] + b"PK\x03\x04" + GOOD[30:], "was not laid out by Warpdeck"),
    ],
)
def test_what_is_no_whole_zip_is_refused(content: bytes, problem: str) -> None:
    assert problem in refusal(content).problem


def test_every_cut_of_an_archive_is_refused() -> None:
    for length in range(0, len(GOOD), 97):
        refusal(GOOD[:length])


def test_every_flipped_byte_is_noticed() -> None:
    for place in range(0, len(GOOD), 61):
        refusal(GOOD[:place] + bytes([GOOD[place] ^ 0x20]) + GOOD[place + 1 :])


@pytest.mark.parametrize(
    "name",
    [
        "../escape",
        "artifacts/../../etc/passwd",
        "/etc/passwd",
        "artifacts\\" + "0" * 64,
        "C:\\windows",
        "artifacts/",
        "artifacts/" + "0" * 63,
        "artifacts/" + "A" * 64,
        "artifacts/" + "0" * 64 + "\n",
        "artifacts/" + "0" * 64 + "/x",
        "notes.txt",
        "Manifest.json",
        "manifest.json\x00.txt",
    ],
)
def test_names_outside_the_three_forms_are_refused(name: str) -> None:
    info = bundle.new_entry("x")
    info.filename = name
    content = packed([*unpacked().items(), (info, b"x")])
    error = refusal(content)
    assert "is none of" in error.problem or "was not laid out" in error.problem


def test_a_name_that_is_there_twice_is_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        content = packed([*unpacked().items(), (SHA256, b"x")])
    assert refusal(content).problem == "is there twice."


def test_links_folders_and_devices_are_refused() -> None:
    for kind in (0o120777, 0o040755, 0o020666):
        info = bundle.new_entry("artifacts/" + "0" * 64)
        info.external_attr = kind << 16
        content = packed([*unpacked().items(), (info, b"/etc/passwd")])
        assert refusal(content).problem == "is not a plain file."


def test_compressed_entries_are_refused_before_they_are_unpacked() -> None:
    bomb = bundle.new_entry("artifacts/" + "0" * 64)
    bomb.compress_type = zipfile.ZIP_DEFLATED
    content = packed([*unpacked().items(), (bomb, bytes(64 * 1024**2))])
    assert len(content) < 1024**2
    assert "is compressed" in refusal(content).problem


def directory_edited(edit: Callable[[bytearray, int], None]) -> bytes:
    """The good archive with the directory record of its last entry edited in place."""
    raw = bytearray(GOOD)
    edit(raw, GOOD.rindex(b"PK\x01\x02"))
    return bytes(raw)


def test_an_entry_that_declares_ten_gigabytes_is_refused_before_it_is_unpacked() -> None:
    def claim(raw: bytearray, at: int) -> None:
        raw[at + 24 : at + 28] = struct.pack("<L", 0xFFFFFFF0)

    assert "is compressed" in refusal(directory_edited(claim)).problem

    def claim_both(raw: bytearray, at: int) -> None:
        raw[at + 20 : at + 28] = struct.pack("<LL", 0xFFFFFFF0, 0xFFFFFFF0)

    error = refusal(directory_edited(claim_both))
    assert "unpacks to" in error.problem
    assert "Runs are far smaller" in error.remedy


def test_overlapping_entries_are_refused() -> None:
    def overlap(raw: bytearray, at: int) -> None:
        raw[at + 42 : at + 46] = struct.pack("<L", 0)

    assert "was not laid out by Warpdeck" in refusal(directory_edited(overlap)).problem


def test_encrypted_entries_are_refused() -> None:
    def encrypt(raw: bytearray, at: int) -> None:
        raw[at + 8 : at + 10] = struct.pack("<H", 1)

    assert refusal(directory_edited(encrypt)).problem == "is encrypted."


def test_too_many_entries_are_refused_before_the_directory_is_parsed() -> None:
    count = bundle.MAX_ENTRIES + 1
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, 46 * count, 30, 0)
    content = b"PK\x03\x04" + bytes(26 + 46 * count) + end
    assert f"more than {bundle.MAX_ENTRIES} entries" in refusal(content).problem


def test_a_zip64_directory_cannot_smuggle_in_more() -> None:
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, 0, 1)
    assert "was not laid out" in refusal(GOOD[:-22] + locator + GOOD[-22:]).problem


def test_a_sparse_file_of_ten_gigabytes_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "huge.zip"
    path.write_bytes(GOOD)
    os.truncate(path, 10 * 1024**3)
    with pytest.raises(ArchiveError, match="is larger than"):
        read_archive(path)


def test_an_archive_packed_anew_by_another_tool_is_refused_with_a_remedy() -> None:
    entries = [(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), c) for name, c in unpacked().items()]
    error = refusal(packed(entries))
    assert "some tool packed it anew" in error.problem
    assert "Export the run again" in error.remedy
    reordered = sorted(unpacked().items(), reverse=True)
    assert "not in order" in refusal(packed(reordered)).problem


def test_missing_surplus_and_damaged_artifacts_are_refused() -> None:
    assert refusal(changed(**{SHA256: None})).problem == "is missing."
    surplus = "artifacts/" + hashlib.sha256(b"x").hexdigest()
    with_surplus = dict(sorted({**unpacked(), surplus: b"x"}.items()))
    ordered = [(n, with_surplus.pop(n)) for n in ("manifest.json", "events.jsonl")]
    content = packed([*ordered, *with_surplus.items()])
    assert refusal(content).problem == "belongs to no event."
    same_size = b"x" * len(unpacked()[SHA256])
    error = refusal(changed(**{SHA256: same_size}))
    assert (error.field, error.problem) == (SHA256, "its bytes do not have this digest.")
    assert "bytes, not" in refusal(changed(**{SHA256: b"longer than the source was"})).problem


def test_a_manifest_that_disagrees_with_the_events_is_refused_by_field() -> None:
    def edited(**fields: Any) -> bytes:
        manifest = {**json.loads(unpacked()["manifest.json"]), **fields}
        return changed(**{"manifest.json": canonical(manifest).encode()})

    for name, value in {"run": "x", "status": "failed", "artifacts": {}, "surplus": 1}.items():
        assert refusal(edited(**{name: value})).field == f"manifest.json '{name}'"
    error = refusal(edited(format=2))
    assert "format 2 is not 1" in error.problem
    assert "version of Warpdeck" in error.remedy
    assert refusal(changed(**{"manifest.json": b"[]"})).problem == "must be an object."
    assert refusal(changed(**{"manifest.json": b"{"})).problem == "is not valid JSON."
    spaced = unpacked()["manifest.json"].replace(b",", b", ", 1)
    assert refusal(changed(**{"manifest.json": spaced})).problem == "is not canonical JSON."
    assert refusal(changed(**{"manifest.json": None})).problem == "is missing."


def set_field(path: list[Any], value: Any) -> Callable[[list[dict[str, Any]]], None]:
    def edit(events: list[dict[str, Any]]) -> None:
        target: Any = events
        for key in path[:-1]:
            target = target[key]
        target[path[-1]] = value

    return edit


@pytest.mark.parametrize(
    ("edit", "place", "problem"),
    [
        (lambda events: events.pop(3), "line 4", "numbers must be dense"),
        (lambda events: events.reverse(), "line 1", "numbers must be dense"),
        (set_field([4, "run"], "another"), "line 5", "belongs to run another"),
        (set_field([0, "payload", "spec"], None), "line 1", "the spec is on the first event"),
        (set_field([0, "type"], "note"), "line 1", "is not a known field"),
        (set_field([1, "type"], "gossip"), "line 2", "'gossip' is not one of run, message"),
        (set_field([1, "payload", "text"], 7), "line 2", "message.text: must be str"),
        (set_field([1, "at"], "noon"), "line 2", "is not an ISO 8601 time"),
        (set_field([1, "extra"], 1), "line 2", "event.extra: is not a known field"),
        (set_field([2, "artifacts", 0, "sha256"], "../up"), "line 3", "not among the event's"),
        (set_field([1, "artifacts"], [{"name": "x", "sha256": "../up", "size": 1}]), "line 2",
         "is not a SHA-256 digest"),
        (set_field([2, "artifacts", 0, "size"], -1), "line 3", "has two sizes"),
        (set_field([2, "payload", "number"], 5), "line 3", "candidate c5 follows c0"),
        (set_field([4, "payload", "evaluation", "wall_s"], 10**400), "line 5", "too large"),
        (set_field([4, "payload", "evaluation", "verdict"], "great"), "line 5", "'great'"),
        (lambda events: events.clear(), "events.jsonl", "the log is empty"),
    ],
)  # fmt: skip
def test_events_that_are_no_log_are_refused_by_line(
    edit: Callable[[list[dict[str, Any]]], Any], place: str, problem: str
) -> None:
    error = refusal(relogged(edit))
    assert error.field.endswith(place)
    assert problem in error.problem


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"\n", "is not valid JSON"),
        (b"\xff\xfe\n", "is not valid JSON"),
        (b"[" * 100_000 + b"\n", "is not valid JSON"),
        (b'{"a": 1}\n', "is not canonical JSON"),
        (b'{"a":1,"a":1}\n', "is not canonical JSON"),
        (b'{"a":NaN}\n', "is not valid JSON"),
        (b'{"a":1e999}\n', "is not valid JSON"),
        (b'{"a":"\\ud800"}\n', "is not valid JSON"),
        (b"7\n", "must be an object"),
        (b'{"a":1}', "is cut off"),
        (b'"' + b"x" * bundle.MAX_EVENT_BYTES + b'"\n', "is cut off or over"),
    ],
)
def test_lines_that_are_no_canonical_events_are_refused(line: bytes, problem: str) -> None:
    events = unpacked()["events.jsonl"]
    error = refusal(changed(**{"events.jsonl": events + line}))
    assert error.field == f"events.jsonl line {len(events.splitlines()) + 1}"
    assert problem in error.problem


def test_a_run_that_is_named_by_no_uuid_is_refused() -> None:
    log = MemoryLog("../../run")
    log.emit(RunPayload(RunStatus.running, "started", RunSpec("softmax")))
    with pytest.raises(ArchiveError, match="is not a UUID"):
        archived(log)


def test_reading_leaves_the_file_of_its_caller_open() -> None:
    file = io.BytesIO(GOOD)
    read_archive(file).close()
    assert not file.closed


def test_the_manifest_round_trips_as_canonical_json() -> None:
    with read_archive(io.BytesIO(GOOD)) as archive:
        assert unpacked()["manifest.json"] == canonical(to_json(archive.manifest)).encode()
