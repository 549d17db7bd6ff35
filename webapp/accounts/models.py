"""One-time sign-in links. There are no passwords; a link is made on the machine that serves.

Only the digest of a link's token is stored, so a copy of the database lets nobody in.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, User
from django.db import models
from django.utils import timezone

LIFETIME = timedelta(hours=24)
LOCAL_ADMIN = "admin"


def local_admin() -> User:
    """The person at this machine: a superuser who can only come in through a link."""
    user, created = User.objects.get_or_create(
        username=LOCAL_ADMIN, defaults={"is_staff": True, "is_superuser": True}
    )
    if created:
        user.set_unusable_password()
        user.save(update_fields=["password"])
    return user


class SignInLinkQuerySet(models.QuerySet["SignInLink"]):
    def issue(self, user: AbstractBaseUser) -> str:
        """Make a link for `user`; returns its token, which is stored nowhere."""
        token = secrets.token_urlsafe(32)
        self.create(user=user, digest=_digest(token), expires_at=timezone.now() + LIFETIME)
        return token

    def redeem(self, token: str) -> AbstractBaseUser | None:
        """Use a link up. None when it is unknown, used or expired; only one caller can win."""
        now = timezone.now()
        usable = self.filter(digest=_digest(token), used_at=None, expires_at__gt=now)
        if usable.update(used_at=now) != 1:
            return None
        user = self.select_related("user").get(digest=_digest(token)).user
        return user if user.is_active else None


class SignInLink(models.Model):
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    digest = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True)

    objects = SignInLinkQuerySet.as_manager()

    def __str__(self) -> str:
        return f"sign-in link of {self.user}"


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
