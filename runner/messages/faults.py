"""What goes wrong with a request to a model, as an exception of the SDK says it.

Owns whether it is worth asking again and the words that people read. Those words go into the log of
a run, so nothing of a request gets into them: no header, no key.
"""

from __future__ import annotations

import email.utils
import json
import os
import re
import time
from dataclasses import dataclass
from enum import StrEnum

import anthropic
import httpx2

from runner.messages import KEY

WORDS_CHARACTERS = 500
LONGEST_RETRY_AFTER_S = 3600.0
_KEY = re.compile(r"sk-[A-Za-z0-9_-]{8,}")
_SECRETS = (KEY, "ANTHROPIC_AUTH_TOKEN")
_AGAIN = {408, 409, 429}  # beside all from 500 on
_TYPES = {  # of an error that arrives within a stream, whose own status was 200
    "rate_limit_error": 429,
    "overloaded_error": 529,
    "api_error": 500,
    "timeout_error": 504,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
}
_FULL = ("prompt is too long", "context window", "context limit", "context length")
_CHANGED = "bound to a different conversation"  # thinking shown again after something changed


class Remedy(StrEnum):
    """What to do about a fault."""

    again = "again"
    afresh = "afresh"  # in a new context: this conversation cannot be taken up
    none = "none"


@dataclass(frozen=True)
class Fault:
    """`words` begin a sentence; `wait_s` is how long the API asks to wait, None where it does not
    say."""

    words: str
    remedy: Remedy
    wait_s: float | None = None


class BrokenStream(Exception):
    """The stream ended before the reply did."""


class Garbled(Exception):
    """The stream holds an event that is none of the API's."""


def judge(error: Exception, silence_s: float) -> Fault | None:
    """What an exception of a request means; None if it is none of the SDK's or the network's."""
    match error:
        case anthropic.APIStatusError():
            return _judge_status(error)
        case anthropic.APITimeoutError(__cause__=httpx2.ConnectTimeout()):
            return Fault("The model cannot be reached", Remedy.again)
        case httpx2.ReadTimeout() | anthropic.APITimeoutError():
            words = f"The model has sent nothing for {silence_s:g} s"
            return Fault(words, Remedy.again)
        case anthropic.APIConnectionError():
            return Fault("The model cannot be reached", Remedy.again)
        case BrokenStream() | httpx2.TransportError() | anthropic.APIResponseValidationError():
            return Fault("The model's reply broke off", Remedy.again)
        case json.JSONDecodeError() | UnicodeDecodeError() | Garbled():
            return Fault("The model's reply was garbled", Remedy.again)
        case anthropic.AnthropicError():
            return Fault(f"The model cannot be asked: {scrub(str(error))}", Remedy.none)
    return None


def scrub(text: str) -> str:
    """The text without anything that looks like a key, on one line and not too long."""
    for name in _SECRETS:
        if secret := os.environ.get(name):
            text = text.replace(secret, "***")
    return " ".join(_KEY.sub("***", text).split())[:WORDS_CHARACTERS]


def _judge_status(error: anthropic.APIStatusError) -> Fault:
    status = error.status_code
    if status < 400:
        status = _TYPES.get(error.type or "", 500)
    told = scrub(error.api_message or "it does not say why")
    if status == 413 or (status == 400 and any(word in told.lower() for word in _FULL)):
        return Fault(f"The conversation does not fit the model's context ({told})", Remedy.afresh)
    if status == 400 and _CHANGED in told:
        return Fault("The model does not take up a conversation that changed", Remedy.afresh)
    wanted = error.response.headers.get("x-should-retry", "")
    if (status in _AGAIN or status >= 500) and wanted != "false":
        return Fault(_retried(status), Remedy.again, _retry_after(error.response.headers))
    return Fault(f"The model's interface refused the request ({status}): {told}", Remedy.none)


def _retried(status: int) -> str:
    match status:
        case 429:
            return "The model's rate limit is reached (429)"
        case 529:
            return "The model is overloaded (529)"
    return f"The model's interface failed ({status})"


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds, from either form of the header; None where there is none that can be read."""
    value = headers.get("retry-after", "")
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return None
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER_S)
