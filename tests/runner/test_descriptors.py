"""What a candidate sends beside its words."""

from __future__ import annotations

import os
import threading

from tests.runner.candidates import PYTHON, judge

FLOOD = """
import contextlib, os, socket, stat

numbers = [int(name) for name in os.listdir("/proc/self/fd") if name not in "012"]
with contextlib.suppress(OSError):
    for number in numbers:
        if stat.S_ISSOCK(os.fstat(number).st_mode):
            end = socket.socket(fileno=os.dup(number))
            for _ in range(100):
                socket.send_fds(end, [b" "], [0] * 8)
"""


def test_a_candidate_cannot_fill_the_descriptor_table_of_its_parent() -> None:
    judge(PYTHON, "triton")
    before, most = len(os.listdir("/proc/self/fd")), [0]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            most[0] = max(most[0], len(os.listdir("/proc/self/fd")))

    watcher = threading.Thread(target=watch)
    watcher.start()
    judge(FLOOD + PYTHON, "triton")
    done.set()
    watcher.join()
    assert 0 < most[0] < before + 100
