"""Content-addressed bytes under `WARPDECK_DATA/artifacts/<2 hex>/<sha256>`.

Owns writing so that a file is either whole or absent, and reading with its digest checked. Knows
nothing of rows: who refers to an artifact is the event log's business.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings

_SHA256 = re.compile(r"[0-9a-f]{64}")


class MissingArtifact(LookupError):
    """No such blob, or its bytes do not have the digest that names them."""


def path(sha256: str) -> Path:
    """Where a blob lies. Raises MissingArtifact for anything that is no digest."""
    if not _SHA256.fullmatch(sha256):
        raise MissingArtifact(f"{sha256[:80]!r} is not a sha256")
    return Path(settings.ARTIFACTS) / sha256[:2] / sha256


def put(content: bytes) -> str:
    """Store bytes durably and return their digest; storing the same bytes twice is free."""
    sha256 = hashlib.sha256(content).hexdigest()
    put_chunks([content], sha256)
    return sha256


def put_chunks(chunks: Iterable[bytes], sha256: str) -> None:
    """Store bytes that come in pieces and are known by their digest; ValueError if it is not it."""
    target = path(sha256)
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=".new-")
    digest = hashlib.sha256()
    try:
        with os.fdopen(descriptor, "wb") as file:
            for chunk in chunks:
                digest.update(chunk)
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != sha256:
            raise ValueError(f"these bytes are not {sha256}")
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


def read(sha256: str) -> bytes:
    """The bytes. Raises MissingArtifact when they are gone or no longer what they were."""
    try:
        content = path(sha256).read_bytes()
    except FileNotFoundError:
        raise MissingArtifact(f"no artifact {sha256}") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise MissingArtifact(f"artifact {sha256} is damaged on disk")
    return content


def read_text(sha256: str, limit: int = 256 * 1024) -> tuple[str, int]:
    """At most `limit` bytes as text for a page, and the whole size in bytes."""
    content = read(sha256)
    return content[:limit].decode("utf-8", errors="replace"), len(content)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
