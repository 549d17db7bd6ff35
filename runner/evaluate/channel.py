"""Messages between the parent and its children: one JSON object a line over a private Unix socket.

Owns framing and descriptor passing. It trusts no sender: a line that is too long or is not a JSON
object raises BadMessage, and nothing here is ever unpickled.
"""

from __future__ import annotations

import json
import os
import select
import socket
from collections.abc import Sequence
from typing import Any

LINE_BYTES = 1 << 20
MAX_DESCRIPTORS = 64  # a GPU takes one a tensor; the kernel passes up to 253
Message = dict[str, Any]


class BadMessage(ValueError):
    """The peer sent what no honest peer sends."""


class Channel:
    """One end. Requests and replies alternate: descriptors belong to the message they came with.

    A parent takes no descriptors from a candidate, which could fill its table with them.
    """

    def __init__(self, end: socket.socket, *, takes_descriptors: bool = True) -> None:
        self.socket = end
        self.takes_descriptors = takes_descriptors
        self.descriptors: list[int] = []
        self._pending = bytearray()

    @classmethod
    def pair(cls, *, takes_descriptors: bool = True) -> tuple[Channel, socket.socket]:
        """Our end, and the bare socket that goes to the child."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        return cls(ours, takes_descriptors=takes_descriptors), theirs

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Raises OSError when the peer is gone."""
        data = json.dumps(message).encode() + b"\n"
        if descriptors:
            sent = socket.send_fds(self.socket, [data], list(descriptors))
            data = data[sent:]
        if data:
            self.socket.sendall(data)

    def receive(self) -> Message | None:
        """The next message; blocks. None at the end of the stream."""
        while (message := self.take()) is None:
            if not self.fill():
                return None
        return message

    def fill(self) -> bool:
        """Read what is there (blocks if nothing is); False at the end of the stream."""
        try:
            if self.takes_descriptors:
                data, descriptors, _, _ = socket.recv_fds(self.socket, 65536, MAX_DESCRIPTORS)
                self.descriptors += descriptors
            else:
                data = self.socket.recv(65536)  # the kernel closes what comes beside it
        except ConnectionError:
            return False
        self._pending += data
        if len(self._pending) > LINE_BYTES:
            raise BadMessage(f"a message of more than {LINE_BYTES} bytes")
        return bool(data)

    @property
    def pending(self) -> bool:
        """Whether anything came since the last message was taken; does not block."""
        readable, _, _ = select.select([self.socket], [], [], 0)
        return bool(self._pending) or (bool(readable) and self.fill())

    def take(self) -> Message | None:
        """The next whole message already read, or None."""
        line, newline, rest = self._pending.partition(b"\n")
        if not newline:
            return None
        self._pending = bytearray(rest)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadMessage(f"not JSON: {error}") from error
        if not isinstance(message, dict):
            raise BadMessage("not an object")
        return message

    def take_descriptors(self) -> list[int]:
        """The descriptors received so far; the caller owns them now."""
        taken, self.descriptors = self.descriptors, []
        return taken

    def close(self) -> None:
        for descriptor in self.take_descriptors():
            os.close(descriptor)
        self.socket.close()
