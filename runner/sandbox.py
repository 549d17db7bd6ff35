"""What a candidate's process may touch: its environment, its file system, its network, its limits.

Owns the bubblewrap command line and the words that describe the isolation really in force. It
starts nothing but the probe that finds out whether bubblewrap works here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import resource
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runner import processes

ROOT = Path(__file__).resolve().parents[1]  # the checkout: runner/ and kernels/ lie in it
ALLOWED_ENVIRONMENT = (
    "PATH",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
)
PROBE_S = 10.0
FILE_BYTES = 1 << 30
PROCESSES = 4096
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
SCRATCH = Path("/dev/shm")  # the only writable folder beside the work folder


@dataclass(frozen=True)
class Isolation:
    """`usable` says whether bubblewrap works here; `sentence` is what a result says about it."""

    usable: bool
    sentence: str


@functools.cache
def isolation() -> Isolation:
    """Probed once a process, by running bubblewrap with the very options that candidates get."""
    common = "own session, rlimits, scrubbed environment"
    reason = _probe()
    if reason is None:
        text = "no network, own processes, read-only file system except its work folder"
        return Isolation(True, f"bubblewrap: {text}; {common}")
    unprotected = "no network or file-system isolation"
    return Isolation(False, f"{common}; {unprotected} (bwrap: {reason})")


def _probe() -> str | None:
    """None when bubblewrap works, else the reason that it does not."""
    if shutil.which("bwrap") is None:
        return "not installed"
    with tempfile.TemporaryDirectory(prefix="warpdeck-probe-") as folder:
        argv = [*_bubblewrap(Path(folder), cuda=False), "true"]
        try:
            finished = processes.run(argv, deadline_s=PROBE_S, output_bytes=2000)
        except OSError as error:
            return str(error)
    if finished.status == 0:
        return None
    return finished.output.strip() or f"ended with status {finished.status}"


def command(argv: list[str], folder: Path, *, cuda: bool) -> list[str]:
    """`argv` inside bubblewrap where that works; `folder` stays writable."""
    return [*_bubblewrap(folder, cuda=cuda), *argv] if isolation().usable else argv


def _bubblewrap(folder: Path, *, cuda: bool) -> list[str]:
    """Read-only view of the machine without home, temporary files, our data or network."""
    argv = ["bwrap", "--die-with-parent", "--unshare-net", "--unshare-pid", "--unshare-ipc"]
    argv += ["--unshare-uts", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--proc", "/proc"]
    if cuda:
        argv += ["--dev-bind", "/dev", "/dev", "--tmpfs", str(SCRATCH)]
    else:
        argv += ["--dev", "/dev", "--tmpfs", str(SCRATCH), "--remount-ro", "/dev"]
    for path in _hidden():
        argv += ["--tmpfs", path]
    for path in _needed():
        argv += ["--ro-bind", path, path]
    argv += ["--bind", str(folder), str(folder), "--chdir", str(folder)]
    for path in _hidden():
        argv += ["--remount-ro", path]
    return [*argv, "--"]


def _hidden() -> list[str]:
    """Folders whose content is none of a candidate's business; outer ones first."""
    home = Path.home()
    paths = {Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir()), ROOT}
    if home != Path("/"):
        paths.add(home)
    if data := os.environ.get("WARPDECK_DATA"):
        paths.add(Path(data).resolve())
    return sorted(str(path) for path in paths if path.is_dir())


def _needed() -> list[str]:
    """What the interpreter reads, bound again where a hidden folder covers it."""
    paths = [Path(sys.base_prefix), Path(sys.prefix), ROOT / "runner", ROOT / "kernels"]
    return list(dict.fromkeys(str(path) for path in paths))


def environment(folder: Path, extra: dict[str, str]) -> dict[str, str]:
    """An allow-list: no key, token or address of ours reaches a child. `folder` serves as home."""
    allowed = {name: os.environ[name] for name in ALLOWED_ENVIRONMENT if name in os.environ}
    return {
        **allowed,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder),
        "TMPDIR": str(folder),
        **extra,
    }


def limit_this_process(*, cpu_s: int, address_space_bytes: int | None) -> None:
    """rlimits of a candidate; called in the forked child before its code is loaded."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)
    _limit(resource.RLIMIT_NPROC, PROCESSES)
    _limit(resource.RLIMIT_CPU, cpu_s)
    if address_space_bytes is not None:
        _limit(resource.RLIMIT_AS, _address_space_now() + address_space_bytes)


def _limit(kind: int, value: int) -> None:
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    resource.setrlimit(kind, (value, value))


def _address_space_now() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def seal(sealed: bool) -> None:
    """Close this process's memory and descriptors to its children, or open them again.

    A child that could write into its zygote would decide what the next candidates meet.
    """
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(not sealed), 0, 0, 0)


def empty(folder: Path, keep: frozenset[str] = frozenset()) -> None:
    """Remove everything in a folder but the names to keep: words for the next candidate."""
    for entry in os.scandir(folder):
        if entry.name in keep:
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(entry.path)


def adopt_orphans() -> None:
    """Descendants whose parent dies become ours, setsid and double fork included."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> int:
    """Kill and reap every child of this process until there is none; returns how many there were.

    Orphans arrive here as their parents die, so the loop ends only when the whole tree is gone.
    """
    killed: set[int] = set()
    while children := _children():
        for pid in children:
            killed.add(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(-1, 0)
    return len(killed)


def _children() -> list[int]:
    """Direct children, zombies included, by a scan of /proc."""
    mine, found = str(os.getpid()), []
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            status = Path(entry.path, "stat").read_text()
            if status.rpartition(")")[2].split()[1] == mine:
                found.append(int(entry.name))
    return found
