from __future__ import annotations

import stat
import subprocess
import time
from pathlib import Path

from webapp.fleet.valkey import embedded


def test_the_embedded_server_answers_to_its_owner_only_and_keeps_nothing(tmp_path: Path) -> None:
    server = embedded(tmp_path)
    assert not server.answers

    process = subprocess.Popen(server.argv, stdout=subprocess.DEVNULL)
    while not server.answers:
        assert process.poll() is None
        time.sleep(0.01)

    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o700
    process.kill()
    process.wait()
    server.clean_up()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_too_deep_for_a_socket_gets_one_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()

    server = embedded(deep)

    assert len(str(server.socket)) < 100
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700
    server.clean_up()
    assert not server.socket.parent.exists()
