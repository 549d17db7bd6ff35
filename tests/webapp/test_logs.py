"""No key of a model provider stands in a log line, whoever wrote it."""

from __future__ import annotations

import io
import logging

import pytest
from celery import signals

from webapp.celery import app
from webapp.logs import WithoutKeys

PLANTED = "sk-ant-planted-51d0c2b7aa"


@pytest.fixture(autouse=True)
def _planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", PLANTED)


def fail() -> None:
    raise ValueError(f"illegal header value {PLANTED!r}")


def test_neither_message_nor_traceback_shows_a_key() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(WithoutKeys("%(levelname)s %(message)s"))
    logger = logging.getLogger("tests.without_keys")
    logger.addHandler(handler)
    try:
        fail()
    except ValueError:
        logger.exception("asking with %s", PLANTED)
    finally:
        logger.removeHandler(handler)

    assert "ERROR asking with [a key, left out]" in stream.getvalue()
    assert "ValueError: illegal header value '[a key, left out]'" in stream.getvalue()
    assert PLANTED not in stream.getvalue()


def test_our_own_loggers_write_that_way() -> None:
    for name in ("django", "webapp", "runner"):
        ours = [each for each in logging.getLogger(name).handlers if each.name == "stderr"]
        assert ours, name
        assert all(isinstance(handler.formatter, WithoutKeys) for handler in ours), name


def test_the_lines_of_the_workers_themselves_do_too() -> None:
    logger = logging.Logger("celery.of.this.test")
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s"))
    logger.addHandler(handler)

    for ready in (signals.after_setup_logger, signals.after_setup_task_logger):
        ready.send(sender=app, logger=logger)
    logger.error("task failed: %s", PLANTED)

    assert stream.getvalue().endswith("task failed: [a key, left out]\n")
