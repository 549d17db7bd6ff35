"""Run archives, `*.warpdeck.zip`: `manifest.json`, `events.jsonl`, `artifacts/<sha256>`.

The same run always gives the same bytes: entries are stored, not compressed, with fixed order,
times and attributes, and the manifest follows from the events. Reading trusts nothing and accepts
exactly what writing makes. This module knows no database and judges no kernel.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, cast

from runner.bundle import (
    ARTIFACT_NAME,
    ARTIFACTS,
    CHUNK,
    EVENTS,
    MANIFEST,
    MAX_EVENT_BYTES,
    ArchiveError,
    damage_named,
    entry_chunks,
    expect,
    new_entry,
    open_bundle,
)
from runner.events import Event
from runner.spec import RunSpec
from runner.state import RunState, moment
from runner.wire import canonical, from_json, to_json

FORMAT = 1
_UPGRADE = "Use the version of Warpdeck that wrote it, or a newer one."


@dataclass(frozen=True)
class Counts:
    events: int
    candidates: int
    evaluations: int


@dataclass(frozen=True)
class Manifest:
    """What the events add up to. `artifacts` maps digest to size in bytes."""

    run: str
    problem: str
    spec: RunSpec
    status: str
    reason: str
    counts: Counts
    first_at: str
    last_at: str
    events_sha256: str
    artifacts: dict[str, int] = field(default_factory=dict)
    format: int = FORMAT


class Archive:
    """An archive that has been checked but for the bytes of its artifacts: those while read.

    A context manager; `state` is the fold over `events`.
    """

    def __init__(
        self,
        manifest: Manifest,
        events: tuple[Event, ...],
        state: RunState,
        bundle: zipfile.ZipFile,
        opened: contextlib.ExitStack,
    ) -> None:
        self.manifest = manifest
        self.events = events
        self.state = state
        self._bundle = bundle
        self._opened = opened

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._opened.close()

    def chunks(self, sha256: str) -> Iterator[bytes]:
        """An artifact piece by piece; raises ArchiveError after the last piece if it is not it."""
        if sha256 not in self.manifest.artifacts:
            raise ArchiveError(f"{ARTIFACTS}{sha256}", "is not in this archive.")
        digest = hashlib.sha256()
        for chunk in entry_chunks(self._bundle, f"{ARTIFACTS}{sha256}"):
            digest.update(chunk)
            yield chunk
        if digest.hexdigest() != sha256:
            raise ArchiveError(f"{ARTIFACTS}{sha256}", "its bytes do not have this digest.")

    def read(self, sha256: str) -> bytes:
        """A whole artifact, its digest checked."""
        return b"".join(self.chunks(sha256))

    def verify(self) -> None:
        """Check every artifact's bytes, one piece in memory at a time."""
        for sha256 in self.manifest.artifacts:
            for _ in self.chunks(sha256):
                pass


# --- writing ---------------------------------------------------------------------------------


def write_archive(
    target: str | os.PathLike[str] | IO[bytes],
    events: Iterable[Event],
    read: Callable[[str], bytes],
) -> Manifest:
    """Write a run; `read` gives an artifact by digest.

    A path appears whole or not at all. Raises ArchiveError when the events are no valid run, or
    when `read` gives other bytes than the digest says.
    """
    with tempfile.TemporaryFile() as lines:
        manifest = _write_events(lines, events)
        if isinstance(target, str | os.PathLike):
            with _replacing(Path(target)) as file:
                _write_bundle(file, manifest, lines, read)
        elif target.seekable() and target.tell() == 0:
            _write_bundle(target, manifest, lines, read)
        else:  # zipfile writes other bytes where it cannot seek
            with tempfile.TemporaryFile() as whole:
                _write_bundle(whole, manifest, lines, read)
                whole.seek(0)
                shutil.copyfileobj(whole, target, CHUNK)
    return manifest


def _write_events(lines: IO[bytes], events: Iterable[Event]) -> Manifest:
    """Spool the log: the manifest that precedes it is known only at its end."""
    fold = _Fold()
    for event in events:
        line = canonical(to_json(event)).encode()
        fold.add(event, line)
        lines.write(line + b"\n")
    lines.seek(0)
    return fold.manifest()


def _write_bundle(
    file: IO[bytes], manifest: Manifest, lines: IO[bytes], read: Callable[[str], bytes]
) -> None:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as bundle:
        bundle.writestr(new_entry(MANIFEST), canonical(to_json(manifest)).encode())
        with bundle.open(new_entry(EVENTS), "w") as entry:
            shutil.copyfileobj(lines, entry, CHUNK)
        for sha256 in sorted(manifest.artifacts):
            content = read(sha256)
            if hashlib.sha256(content).hexdigest() != sha256:
                raise ArchiveError(f"{ARTIFACTS}{sha256}", "the stored bytes are damaged.")
            bundle.writestr(new_entry(f"{ARTIFACTS}{sha256}"), content)


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file beside `path` that takes its place once it is complete."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# --- what the events add up to ---------------------------------------------------------------


class _Fold:
    """Checks events one after the other and adds up their manifest."""

    def __init__(self) -> None:
        self.state = RunState()
        self.artifacts: dict[str, int] = {}
        self._digest = hashlib.sha256()
        self._first_at = ""

    def add(self, event: Event, line: bytes) -> None:
        place = f"{EVENTS} line {self.state.last_seq + 1}"
        if len(line) > MAX_EVENT_BYTES:
            raise ArchiveError(place, f"the event is larger than {MAX_EVENT_BYTES} bytes.")
        try:
            moment(event)
            event.decoded  # noqa: B018  # a payload that does not decode raises here
            self.state = self.state.apply(event)
        except (ValueError, ArithmeticError) as error:
            raise ArchiveError(place, f"{error}.") from error
        for ref in event.artifacts:
            self._add_artifact(place, ref.sha256, ref.size)
        self._first_at = self._first_at or event.at
        self._digest.update(line + b"\n")

    def manifest(self) -> Manifest:
        state = self.state
        if state.spec is None:
            raise ArchiveError(EVENTS, "the log is empty.")
        expect(_is_uuid(state.run), EVENTS, f"the run {state.run!r} is not a UUID.")
        return Manifest(
            run=state.run,
            problem=state.spec.problem,
            spec=state.spec,
            status=state.status.value,
            reason=state.reason,
            counts=Counts(state.last_seq, len(state.candidates), len(state.evaluations)),
            first_at=self._first_at,
            last_at=state.last_at,
            events_sha256=self._digest.hexdigest(),
            artifacts=dict(sorted(self.artifacts.items())),
        )

    def _add_artifact(self, place: str, sha256: str, size: int) -> None:
        named = ARTIFACT_NAME.match(f"{ARTIFACTS}{sha256}")
        expect(named is not None, place, f"{sha256[:80]!r} is not a SHA-256 digest.")
        known = self.artifacts.setdefault(sha256, size)
        expect(known == size >= 0, place, f"artifact {sha256} has two sizes.")


def _is_uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


# --- reading ---------------------------------------------------------------------------------


def read_archive(source: str | os.PathLike[str] | IO[bytes]) -> Archive:
    """Check an archive and open it; raises ArchiveError, or OSError when it cannot be read.

    A file object stays the caller's to close, and must stay open while the archive is used.
    """
    with contextlib.ExitStack() as opened:
        file = source
        if isinstance(source, str | os.PathLike):
            file = opened.enter_context(open(source, "rb"))
        bundle = opened.enter_context(open_bundle(cast(IO[bytes], file)))
        manifest, events, state = _read_contents(bundle)
        return Archive(manifest, events, state, bundle, opened.pop_all())


def _read_contents(bundle: zipfile.ZipFile) -> tuple[Manifest, tuple[Event, ...], RunState]:
    raw = b"".join(entry_chunks(bundle, MANIFEST))
    fold = _Fold()
    events = tuple(_read_events(bundle, fold))
    manifest = fold.manifest()
    _check_manifest(raw, manifest)
    sizes = {
        info.filename.removeprefix(ARTIFACTS): info.file_size for info in bundle.infolist()[2:]
    }
    for sha256, size in manifest.artifacts.items():
        place = f"{ARTIFACTS}{sha256}"
        expect(sha256 in sizes, place, "is missing.")
        expect(sizes[sha256] == size, place, f"has {sizes[sha256]} bytes, not {size}.")
    for sha256 in sizes:
        expect(sha256 in manifest.artifacts, f"{ARTIFACTS}{sha256}", "belongs to no event.")
    return manifest, events, fold.state


def _read_events(bundle: zipfile.ZipFile, fold: _Fold) -> Iterator[Event]:
    for number, line in enumerate(_lines(bundle), start=1):
        place = f"{EVENTS} line {number}"
        whole = line.endswith(b"\n") and len(line) <= MAX_EVENT_BYTES + 1
        expect(whole, place, f"is cut off or over {MAX_EVENT_BYTES} bytes.")
        value = _parse(place, line[:-1])
        try:
            event = from_json(Event, value, "event")
        except (ValueError, ArithmeticError) as error:
            raise ArchiveError(place, f"{error}.") from error
        fold.add(event, line[:-1])
        yield event


def _lines(bundle: zipfile.ZipFile) -> Iterator[bytes]:
    with damage_named(EVENTS), bundle.open(EVENTS) as file:
        while line := file.readline(MAX_EVENT_BYTES + 1):
            yield line


def _parse(place: str, text: bytes) -> Any:
    """A JSON value in its one canonical form."""
    try:
        value = json.loads(text)
        same = canonical(value).encode() == text
    except (ValueError, RecursionError) as error:
        raise ArchiveError(place, "is not valid JSON.") from error
    expect(same, place, "is not canonical JSON.")
    return value


def _check_manifest(raw: bytes, expected: Manifest) -> None:
    found, wanted = _parse(MANIFEST, raw), to_json(expected)
    expect(isinstance(found, dict), MANIFEST, "must be an object.")
    version = found.get("format")
    expect(version == FORMAT, MANIFEST, f"format {version!r} is not {FORMAT}.", _UPGRADE)
    for name in sorted(wanted.keys() | found.keys()):
        agrees = name in wanted and name in found and found[name] == wanted[name]
        expect(agrees, f"{MANIFEST} {name[:100]!r}", "does not agree with the events.")
    expect(raw == canonical(wanted).encode(), MANIFEST, "does not agree with the events.")
