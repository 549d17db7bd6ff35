"""Keeps the tokens of sign-in links out of every log, used up or not."""

from __future__ import annotations

import logging
import re

_TOKEN = re.compile(r"(/sign-in/)[^/\s\"']+")


class WithoutTokens(logging.Filter):
    """Rewrites a record so that what follows `/sign-in/` is not in its message."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "/sign-in/" in text:
            record.msg, record.args = _TOKEN.sub(r"\1…", text), ()
        return True
