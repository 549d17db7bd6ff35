"""The levels of an analysis as one artifact: every text of every kernel, with its line table.

Packed so that equal levels have equal bytes. An artifact may come from an archive that somebody
else wrote, so unpacking is bounded. The binary is left out: the texts are what people compare.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace

from runner.analysis.levels import Levels
from runner.wire import canonical, from_json, to_json

ARTIFACT = "levels.json.gz"
MAX_BYTES = 32 * 1024**2  # unpacked; as Python's objects it may take twenty times as much


def pack(levels: Iterable[Levels]) -> bytes:
    """The artifact of these levels; deterministic."""
    document = [to_json(replace(each, binary=b"")) for each in levels]
    for each in document:
        each.pop("binary")
    return gzip.compress(canonical(document).encode("utf-8", "replace"), mtime=0)


def unpack(content: bytes) -> tuple[Levels, ...]:
    """Raises ValueError for what is no such artifact, or unpacks to more than MAX_BYTES."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
            text = file.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"the stored levels are damaged: {error}") from error
    if len(text) > MAX_BYTES:
        raise ValueError(f"the stored levels unpack to more than {MAX_BYTES:,} bytes")
    try:
        levels = from_json(tuple[Levels, ...], json.loads(text), "levels")
        for each in levels:  # JSON can spell half a character, which no page could be sent with
            "".join((each.kernel, *(level.name + level.text for level in each.levels))).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the stored levels are damaged: {error}") from error
    return levels
