"""Keeps tokens out of every log: those of sign-in links, used up or not, and those of runs."""

from __future__ import annotations

import logging
import re

_TOKEN = re.compile(r"(/sign-in/)[^/\s\"']+|\b(wd_)[\w-]{20,}")


class WithoutTokens(logging.Filter):
    """Rewrites a record so that neither what follows `/sign-in/` nor a run's token is in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if _TOKEN.search(text):
            record.msg, record.args = _TOKEN.sub(r"\1\2…", text), ()
        return True
