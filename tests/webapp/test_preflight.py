from __future__ import annotations

import pytest

from webapp.fleet import preflight


def test_a_missing_compiler_is_named_with_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    notes = " ".join(preflight.device_warnings())

    assert "g++ is missing" in notes
    assert "apt-get install g++" in notes


@pytest.mark.parametrize("port", [0, -1, 65536])
def test_a_number_that_is_no_port_is_refused(port: int) -> None:
    with pytest.raises(preflight.Refused, match="is no port"):
        preflight.check_address("127.0.0.1", port)


def test_a_broker_that_does_not_answer_is_refused_without_repeating_its_password() -> None:
    with pytest.raises(preflight.Refused, match="REDIS_URL: no Redis or Valkey answers") as caught:
        preflight.check_broker("redis://:hunter2@127.0.0.1:1/0")

    assert "hunter2" not in str(caught.value)


def test_a_broker_that_answers_is_accepted(valkey: str) -> None:
    preflight.check_broker(valkey)


def test_an_agent_that_cannot_run_here_is_named_with_what_it_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    (note,) = preflight.agent_warnings()
    assert note.startswith("ANTHROPIC_API_KEY is not set: runs of the claude agent will wait")

    monkeypatch.setenv("ANTHROPIC_API_KEY", "a key of this test")
    assert preflight.agent_warnings() == []
