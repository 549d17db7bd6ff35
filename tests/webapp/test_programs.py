"""Which program is started with what."""

from __future__ import annotations

from pathlib import Path

from webapp.fleet import programs
from webapp.fleet.valkey import Valkey

ENVIRONMENT = {"PATH": "/bin", "ANTHROPIC_API_KEY": "planted", "ANTHROPIC_BASE_URL": "http://x"}


def test_keys_reach_the_worker_that_drives_agents_and_no_other_program() -> None:
    server = Valkey("valkey-server", Path("/tmp/v.sock"), Path("/tmp"))
    others = [
        programs.valkey(server, ENVIRONMENT),
        programs.web("127.0.0.1", 8000, ENVIRONMENT),
        programs.device("cuda:0", ENVIRONMENT),
        programs.reconciler(ENVIRONMENT),
    ]

    assert programs.agents(ENVIRONMENT).environment == ENVIRONMENT
    for program in others:
        assert program.environment == {"PATH": "/bin"}, program.name
    for program in (*others, programs.agents(ENVIRONMENT)):
        assert "planted" not in " ".join(program.argv), program.name
