"""Settings. Everything a deployment changes comes from the environment; see README.

`WARPDECK_DATA` (database, artifacts, Valkey, keys), `DATABASE_URL`, `REDIS_URL`, `WARPDECK_HOSTS`
(comma-separated names the web answers to besides those of loopback), `WARPDECK_SECRET_KEY`,
`WARPDECK_LEASE_S` (seconds until a silent worker counts as dead).
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import dj_database_url

BASE_DIR = Path(__file__).resolve().parent.parent
DATA = Path(os.environ.get("WARPDECK_DATA", BASE_DIR / "data")).resolve()
ARTIFACTS = DATA / "artifacts"


def _secret_key() -> str:
    """The signing key: from the environment, else made once per data folder, for our eyes only."""
    if key := os.environ.get("WARPDECK_SECRET_KEY"):
        return key
    path = DATA / "secret_key"
    try:
        DATA.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_urlsafe(48))
    except FileExistsError:
        pass
    except OSError:
        return secrets.token_urlsafe(48)  # `up` reports the unwritable folder in plain words
    return path.read_text() or secrets.token_urlsafe(48)


SECRET_KEY = _secret_key()
DEBUG = False
HOSTS = [name.strip() for name in os.environ.get("WARPDECK_HOSTS", "").split(",") if name.strip()]
ALLOWED_HOSTS = [*HOSTS, "127.0.0.1", "localhost", "[::1]"]
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.humanize",
    "django_htmx",
    "channels",
    "webapp.runs",
    "webapp.review",
    "webapp.knowledge",
    "webapp.fleet",
    "webapp.accounts",
    "webapp.api",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "webapp.policy.content_security_policy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "webapp.urls"
ASGI_APPLICATION = "webapp.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
            "builtins": ["webapp.runs.templatetags.formats"],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    ["django.template.loaders.filesystem.Loader"],
                )
            ],
        },
    }
]

DATABASES = {"default": dj_database_url.config(default=f"sqlite:///{DATA / 'warpdeck.sqlite3'}")}
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    # Immediate transactions: a writer waits for the lock at BEGIN instead of failing at COMMIT.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
    # A file, so that tests with threads and worker processes see one database.
    DATABASES["default"]["TEST"] = {"NAME": str(DATA / "test.sqlite3")}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"


def _broker_url() -> str:
    """REDIS_URL, else what `up` wrote for the Valkey it embeds, else where that would lie."""
    if url := os.environ.get("REDIS_URL"):
        return url
    try:
        return (DATA / "valkey.url").read_text().strip()
    except OSError:
        return f"unix://{DATA / 'valkey.sock'}"


REDIS_URL = _broker_url()
LEASE_S = float(os.environ.get("WARPDECK_LEASE_S", "12"))
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [REDIS_URL], "prefix": "warpdeck"},
    }
}
CELERY_BROKER_URL = REDIS_URL.replace("unix://", "redis+socket://", 1)
# A page and a driver must not hang on a broker that is away: hints are sent again by others.
CELERY_BROKER_TRANSPORT_OPTIONS = {
    "socket_connect_timeout": 3,
    "max_retries": 1,
    "interval_start": 0,
    "interval_step": 0,
}
CELERY_IMPORTS = ("webapp.fleet.presence",)  # beside the tasks: a worker makes itself known
CELERY_TASK_IGNORE_RESULT = True  # results are rows, never broker state
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None  # a broker may be away for as long as it likes
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False

# To stderr, which `up` keeps in a file per process: a failed request with its traceback.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "webapp.logs.WithoutKeys",
            "format": "%(asctime)s %(levelname)s %(name)s: %(message)s",
        }
    },
    "filters": {"tokens": {"()": "webapp.accounts.redaction.WithoutTokens"}},
    "handlers": {
        "stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["tokens"]}
    },
    "loggers": {
        "django": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
        "webapp": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "runner": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        "mcp": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
    },
}

STATIC_URL = "static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
LOGIN_URL = "sign-in"
LOGIN_REDIRECT_URL = "runs"
SESSION_COOKIE_AGE = 30 * 24 * 3600
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
X_FRAME_OPTIONS = "DENY"
USE_TZ = True
TIME_ZONE = "UTC"
DATA_UPLOAD_MAX_MEMORY_SIZE = 10 * 1024 * 1024
