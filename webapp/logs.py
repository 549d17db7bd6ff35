"""Log lines without keys of model providers, whoever writes them and whatever they quote."""

from __future__ import annotations

import logging

from runner import keys


class WithoutKeys(logging.Formatter):
    """Formats as `inner` does, tracebacks too, and leaves out any key of this process."""

    def __init__(self, format: str | None = None, inner: logging.Formatter | None = None) -> None:
        super().__init__(format)
        self._inner = inner or logging.Formatter(format)

    def format(self, record: logging.LogRecord) -> str:
        return keys.redact(self._inner.format(record))


def leave_out_keys(logger: logging.Logger) -> None:
    """For a logger whose handlers somebody else has made."""
    for handler in logger.handlers:
        if not isinstance(handler.formatter, WithoutKeys):
            handler.setFormatter(WithoutKeys(inner=handler.formatter))
