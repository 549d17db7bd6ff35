"""Keys of model providers: which variables hold them, and how they stay out of everything else.

The process that asks a model has them in its environment. Its children, the log of a run and the
lines of a log file do not: environments and texts come here first. No key is ever kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

PREFIX = "ANTHROPIC_"
SECRET = ("KEY", "TOKEN", "HEADERS")  # the others, such as a base URL, are settings
SHORTEST = 8  # a shorter value would be found in harmless words
REPLACEMENT = "[a key, left out]"


def without_keys(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that asks no model."""
    return {name: value for name, value in environment.items() if not name.startswith(PREFIX)}


def present() -> bool:
    """True in a process that could give a key away."""
    return bool(_values())


def redact(text: str) -> str:
    """The text, without any key of this process."""
    for value in _values():
        text = text.replace(value, REPLACEMENT)
    return text


def redact_document(document: Any) -> Any:
    """Plain JSON whose texts hold no key of this process."""
    if not _values():
        return document
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, list):
        return [redact_document(item) for item in document]
    if isinstance(document, dict):
        return {name: redact_document(value) for name, value in document.items()}
    return document


def _values() -> list[str]:
    found = []
    for name, value in os.environ.items():
        if name.startswith(PREFIX) and any(word in name for word in SECRET):
            found.append(value.strip())
    return [value for value in found if len(value) >= SHORTEST]
