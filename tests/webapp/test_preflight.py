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
