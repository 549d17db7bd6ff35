"""The zip file of a run archive, byte for byte: which entries there are and how they lie.

Writing and reading agree here on one layout, so equal contents have equal bytes, and whatever was
laid out otherwise is refused before it is unpacked. What the entries say is `archive`'s business.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import zipfile
from collections.abc import Iterator
from typing import IO

MAX_ENTRIES = 20_000
MAX_TOTAL_BYTES = 2 * 1024**3
MAX_EVENTS_BYTES = 256 * 1024**2
MAX_EVENT_BYTES = 1024**2
MAX_MANIFEST_BYTES = 4 * 1024**2
CHUNK = 1024**2
MANIFEST, EVENTS, ARTIFACTS = "manifest.json", "events.jsonl", "artifacts/"

ARTIFACT_NAME = re.compile(r"artifacts/[0-9a-f]{64}\Z")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time a zip can hold
_ATTRIBUTES = (stat.S_IFREG | 0o644) << 16
_UNIX = 3
_ZIP64_LOCATOR = 20
_LONGEST_NAME = len(ARTIFACTS) + 64
_CENTRAL = struct.Struct("<4s4B4HL2L5H2L")
_END = struct.Struct("<4s4H2LH")
_END_ZIP64 = b"PK\x06\x07"
EXPORT_AGAIN = "Export the run again, or copy the file again."
_CHOOSE = "Choose a *.warpdeck.zip file."
_LARGE = "Runs are far smaller; do not trust where this file came from."
_CUT = "is cut off, or something was appended to it."
_FOREIGN = "was not laid out by Warpdeck: some tool packed it anew."


class ArchiveError(ValueError):
    """The file is no archive of ours: `field` says where, `remedy` what to do about it."""

    def __init__(self, field: str, problem: str, remedy: str = EXPORT_AGAIN) -> None:
        super().__init__(f"{field}: {problem} {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


def open_bundle(file: IO[bytes]) -> zipfile.ZipFile:
    """The zip file once its directory is known to be small, and its layout ours."""
    directory_at = _check_end(file)
    try:
        bundle = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise ArchiveError("archive", f"its directory is damaged: {error}.") from error
    try:
        _check_entries(bundle.infolist())
        _check_layout(file, bundle.infolist(), directory_at)
    except ArchiveError:
        bundle.close()
        raise
    return bundle


def _check_end(file: IO[bytes]) -> int:
    """Read the end record before anything else: it bounds what parsing the directory may cost."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    expect(file.read(4) == b"PK\x03\x04", "archive", "is not a zip file.", _CHOOSE)
    expect(size <= MAX_TOTAL_BYTES, "archive", f"is larger than {MAX_TOTAL_BYTES} bytes.", _LARGE)
    expect(size > _END.size + _ZIP64_LOCATOR, "archive", _CUT)
    file.seek(size - _END.size - _ZIP64_LOCATOR)
    tail = file.read()
    signature, *disks, here, total, length, offset, comment = _END.unpack(tail[-_END.size :])
    expect(signature == b"PK\x05\x06", "archive", _CUT)
    expect(total <= MAX_ENTRIES, "archive", f"holds more than {MAX_ENTRIES} entries.", _LARGE)
    plain = disks == [0, 0] and here == total and comment == 0 and tail[:4] != _END_ZIP64
    expect(plain and offset + length + _END.size == size, "archive", _FOREIGN)
    expect(length <= total * (_CENTRAL.size + _LONGEST_NAME), "archive", _FOREIGN)
    return int(offset)


def _check_entries(entries: list[zipfile.ZipInfo]) -> None:
    """Refuse by name and size, before anything is unpacked."""
    names = set()
    for info in entries:
        place, name = f"entry {info.orig_filename[:100]!r}", info.orig_filename
        known = name in (MANIFEST, EVENTS) or ARTIFACT_NAME.match(name)
        expect(known, place, "is none of manifest.json, events.jsonl, artifacts/<sha256>.")
        expect(name not in names, place, "is there twice.")
        names.add(name)
        expect(not info.flag_bits & 1, place, "is encrypted.")
        kind = stat.S_IFMT(info.external_attr >> 16)
        expect(kind in (0, stat.S_IFREG), place, "is not a plain file.")
        stored = info.compress_type == zipfile.ZIP_STORED and info.file_size == info.compress_size
        expect(stored, place, "is compressed; entries of a run archive are only stored.")
    for name, limit in ((MANIFEST, MAX_MANIFEST_BYTES), (EVENTS, MAX_EVENTS_BYTES)):
        found = [info.file_size for info in entries if info.orig_filename == name]
        expect(found, name, "is missing.")
        expect(found[0] <= limit, name, f"is larger than {limit} bytes.", _LARGE)
    total = sum(info.file_size for info in entries)
    expect(total <= MAX_TOTAL_BYTES, "archive", f"unpacks to {total} bytes.", _LARGE)


def _check_layout(file: IO[bytes], entries: list[zipfile.ZipInfo], directory_at: int) -> None:
    """Entries must lie one after the other as writing lays them: no gap, overlap or extra field."""
    names = [info.orig_filename for info in entries]
    in_order = [MANIFEST, EVENTS, *sorted(names[2:])]
    expect(names == in_order, "archive", "its entries are not in order.")
    offset, record_at = 0, directory_at
    for info in entries:
        ours = new_entry(info.orig_filename)
        ours.CRC, ours.file_size, ours.compress_size = info.CRC, info.file_size, info.file_size
        header = ours.FileHeader(zip64=False)
        record = _central_record(ours, offset)
        same = _read_at(file, offset, len(header)) == header
        same = same and _read_at(file, record_at, len(record)) == record
        expect(same, f"entry {info.orig_filename!r}", _FOREIGN)
        offset += len(header) + info.file_size
        record_at += len(record)
    end_at = file.seek(0, os.SEEK_END) - _END.size
    expect(offset == directory_at and record_at == end_at, "archive", _FOREIGN)


def _central_record(info: zipfile.ZipInfo, offset: int) -> bytes:
    """The directory record that zipfile writes for an entry of ours."""
    name = info.filename.encode("ascii")
    version, date, sizes = info.extract_version, 1 << 5 | 1, (info.file_size, info.file_size)
    fixed = (b"PK\x01\x02", version, _UNIX, version, 0, 0, zipfile.ZIP_STORED, 0, date)
    place = (len(name), 0, 0, 0, 0, _ATTRIBUTES, offset)
    return _CENTRAL.pack(*fixed, info.CRC, *sizes, *place) + name


def _read_at(file: IO[bytes], offset: int, size: int) -> bytes:
    file.seek(offset)
    return file.read(size)


def new_entry(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _EPOCH)
    info.create_system = _UNIX
    info.external_attr = _ATTRIBUTES
    return info


def entry_chunks(bundle: zipfile.ZipFile, name: str) -> Iterator[bytes]:
    with damage_named(name), bundle.open(name) as file:
        while chunk := file.read(CHUNK):
            yield chunk


@contextlib.contextmanager
def damage_named(name: str) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, EOFError) as error:
        raise ArchiveError(name, "its bytes do not match their checksum.") from error


def expect(condition: object, place: str, problem: str, remedy: str = EXPORT_AGAIN) -> None:
    if not condition:
        raise ArchiveError(place, problem, remedy)
