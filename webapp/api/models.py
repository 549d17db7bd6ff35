"""What outside agents need in the web: a run's token, and the tool calls that came in for it.

Owns who may call and which call is which. What a call comes to is written in the run's log, and
only there.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser
from django.db import models
from django.utils import timezone

from runner.agents import external
from webapp.runs.models import Run

PREFIX = "wd_"  # marks a token as ours, so that logs can be kept free of them
LIFETIME = timedelta(days=7)  # as long as a run may take
GRACE = timedelta(minutes=10)  # in which an agent that still calls is told that the run is over
SEEN_EVERY = timedelta(seconds=30)  # a busy agent must not cost a write per call
_NOBODY = "0" * 64


class TokenQuerySet(models.QuerySet["Token"]):
    def issue(self, run: Run, user: AbstractBaseUser) -> str:
        """A new token for the run, stored nowhere; the one before it is worth nothing any more."""
        token = PREFIX + secrets.token_urlsafe(32)
        now = timezone.now()
        made = {"digest": _digest(token), "made_by": user, "created_at": now, "used_at": None}
        self.update_or_create(run=run, defaults={**made, "expires_at": now + LIFETIME})
        return token

    def admits(self, run_pk: int, token: str) -> bool:
        """True if that is the token of that run, and it still holds."""
        row = self.select_related("run").filter(run=run_pk).first()
        known = row.digest if row is not None else _NOBODY
        same = hmac.compare_digest(known, _digest(token))
        if row is None or not same or not row.holds:
            return False
        row.see()
        return True


class Token(models.Model):
    """Lets an outside agent act in one run. Only its digest is kept."""

    run = models.OneToOneField(Run, on_delete=models.CASCADE, related_name="token")
    digest = models.CharField(max_length=64)
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+"
    )
    created_at = models.DateTimeField()
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    objects = TokenQuerySet.as_manager()

    def __str__(self) -> str:
        return f"token of run {self.run_id}"

    @property
    def holds(self) -> bool:
        ended = self.run.ended_at
        return not self.expired and (ended is None or timezone.now() < ended + GRACE)

    @property
    def expired(self) -> bool:
        """True once its time is over, whatever becomes of the run."""
        return timezone.now() >= self.expires_at

    def see(self) -> None:
        """Remember that it was used just now."""
        now = timezone.now()
        if self.used_at is None or now - self.used_at > SEEN_EVERY:
            Token.objects.filter(pk=self.pk, digest=self.digest).update(used_at=now)


class ToolRequest(models.Model):
    """A tool call that came in. `number` is dense in its run; `heard_seq` is where its answer may
    begin: the last tool result in the log when it was made. `delivered`: its answer went out."""

    run = models.ForeignKey(Run, on_delete=models.CASCADE, related_name="tool_requests")
    number = models.PositiveIntegerField()
    tool = models.CharField(max_length=100)
    arguments_text = models.TextField()
    digest = models.CharField(max_length=64)  # of tool and arguments
    heard_seq = models.PositiveIntegerField()
    created_at = models.DateTimeField(default=timezone.now)
    delivered = models.BooleanField(default=False)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "number"], name="one_tool_request_per_number")
        ]
        ordering = ["number"]

    def __str__(self) -> str:
        return f"request {self.number} of run {self.run_id}"

    @property
    def request(self) -> external.ToolRequest:
        return external.ToolRequest(self.number, self.tool, json.loads(self.arguments_text))


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
