"""What untrusted code may touch: its environment, files, network, system calls and limits.

Owns the bubblewrap command line, the launcher inside it (`python -m runner.sandbox limits SECONDS
MEMORY FILE COMMAND …`, or `closed COMMAND …`) and the words that describe the isolation
really in force. The file system is made of what is named here; of the rest nothing is in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import itertools
import os
import resource
import shutil
import signal
import struct
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from runner import processes, seccomp

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
# Programs and libraries, what the loader and the C library look up, and what they ask of the
# machine. Nothing under /run, /var, /srv or /home: sockets of services there can be connected to
# through a read-only mount, and root reads every secret.
SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store"),
    *("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d"),
    *("/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
    *("/sys/devices", "/sys/dev", "/sys/bus", "/sys/class", "/sys/module", "/sys/kernel/mm"),
)
GPU_DEVICES = "nvidia*"  # below /dev; all of /dev would give root the disks
OWN_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")  # those that bubblewrap gives
SCRATCH = Path("/dev/shm")  # the only folder that a candidate can write to
SCRATCH_BYTES = 1 << 30
PROBE_S = 20.0
FILE_BYTES = 1 << 30
PROCESSES = 4096
_LAUNCHER = (sys.executable, "-S", "-P", "-m", "runner.sandbox")
_MS_RDONLY, _MS_NO_MASK, _MS_REMOUNT, _MS_BIND = 1, 2 | 4 | 8, 32, 4096  # nosuid, nodev, noexec
_CAPABILITY_VERSION, _CAP_SYS_ADMIN = 0x2008_0522, 1 << 21
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36


@dataclass(frozen=True)
class Isolation:
    """`usable` says whether bubblewrap works here; `sentence` is what a result says about it."""

    usable: bool
    sentence: str


@functools.cache
def isolation() -> Isolation:
    """Probed once a process, with the very options that candidates get."""
    with tempfile.TemporaryDirectory(prefix="warpdeck-probe-") as name:
        folder = Path(name)
        inside = _Probe(False, reason="not installed")
        if shutil.which("bwrap") is not None:
            inside = _probe(_bubblewrap(folder, cuda=False, writable=True), folder)
        outside = inside if inside.usable else _probe([], folder)
    filtered = f"{len(seccomp.REFUSED)} system calls refused"
    common = filtered if outside.filtered else "no filter on system calls"
    common += ", own session, rlimits, scrubbed environment"
    if inside.usable:
        walls = "no network, own processes, read-only system files alone"
        most = f"{SCRATCH_BYTES >> 30} GiB of memory" if _sized() else "half the memory"
        words = f"{walls}, writes go to at most {most}, compiler too"
        return Isolation(True, f"bubblewrap: {words}; {common}")
    unprotected = "no network or file-system isolation"
    return Isolation(False, f"{unprotected} (bwrap: {inside.reason}); {common}")


@dataclass(frozen=True)
class _Probe:
    """Whether a command ran, whether its system calls were filtered, or why it did not run."""

    usable: bool
    filtered: bool = False
    reason: str = ""


def _probe(wrapper: list[str], folder: Path) -> _Probe:
    """The launcher, inside `wrapper`, shows what the kernel says of the process that it became."""
    argv = [*wrapper, *limited(["cat", "/proc/self/status"], cpu_s=10, memory_bytes=1 << 30)]
    try:
        finished = processes.run(
            argv, deadline_s=PROBE_S, output_bytes=8000, environment=environment(folder, {})
        )
    except OSError as error:
        return _Probe(False, reason=str(error))
    if finished.status == 0:
        return _Probe(True, filtered="Seccomp:\t2" in finished.output)
    last = finished.output.strip().rpartition("\n")[2]
    return _Probe(False, reason=last or f"ended with status {finished.status}")


def command(
    argv: list[str], folder: Path, *, cuda: bool = False, writable: bool = False
) -> list[str]:
    """`argv` in bubblewrap, where that works; it sees `folder`, and writes there if `writable`."""
    if not isolation().usable:
        return argv
    return [*_bubblewrap(folder, cuda=cuda, writable=writable), *argv]


def _bubblewrap(folder: Path, *, cuda: bool, writable: bool) -> list[str]:
    """The command becomes process 1 of its namespace: nothing inside can kill or outlive it."""
    argv = ["bwrap", "--die-with-parent", "--as-pid-1", "--unshare-net", "--unshare-pid"]
    argv += ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--cap-drop", "ALL"]
    argv += [] if _may_mount() else ["--unshare-user"]
    mounts = _mounts()
    for path, option in sorted(mounts.items()):  # outer folders first
        argv += [option, str(path)] if option == "--tmpfs" else [option, str(path), str(path)]
    argv += ["--proc", "/proc", "--dev", "/dev"]
    for path in _gpu_devices() if cuda else []:
        argv += ["--dev-bind", str(path), str(path)]
    argv += [*_sized(), "--tmpfs", str(SCRATCH)]
    argv += ["--bind" if writable else "--ro-bind", str(folder), str(folder)]
    argv += ["--chdir", str(folder)]
    for name, value in homes(SCRATCH).items():
        argv += ["--setenv", name, value]
    hidden = [path for path, option in mounts.items() if option == "--tmpfs"]
    for path in _kernel_settings():
        argv += ["--ro-bind", str(path), str(path)]
    for path in [*map(Path, ("/", "/dev", "/dev/pts")), *hidden]:
        argv += ["--remount-ro", str(path)]
    if os.geteuid() == 0:  # one capability more, until the launcher has closed what root owns
        return [*argv, "--cap-add", "CAP_SYS_ADMIN", "--", *_LAUNCHER, "closed"]
    return [*argv, "--"]


def _may_mount() -> bool:
    """False for the root of most containers, who has to make a user namespace as others do."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) & _CAP_SYS_ADMIN)


def _mounts() -> dict[Path, str]:
    """What is shown read-only and, within it, what is hidden: a narrower path decides."""
    shown = [*map(Path, SYSTEM), *_tools()]
    needed = [Path(sys.base_prefix), Path(sys.prefix), ROOT / "runner", ROOT / "kernels"]
    mounts = dict.fromkeys(shown, "--ro-bind")
    mounts |= dict.fromkeys(_hidden(), "--tmpfs")
    mounts |= dict.fromkeys(needed, "--ro-bind")
    mounts = {path: option for path, option in mounts.items() if path.exists() and path.name}
    return {path: option for path, option in mounts.items() if not _covered(path, mounts)}


def _covered(path: Path, mounts: dict[Path, str]) -> bool:
    """Shown already, since the nearest folder around it is: a symbolic link is no mount point."""
    around = next((parent for parent in path.parents if parent in mounts), None)
    return around is not None and mounts[path] == mounts[around] == "--ro-bind"


def _hidden() -> set[Path]:
    """Folders whose content is none of a candidate's business, wherever they lie."""
    paths = {Path("/tmp"), Path("/var/tmp"), Path(tempfile.gettempdir()), ROOT, Path.home()}
    if data := os.environ.get("WARPDECK_DATA"):
        paths.add(Path(data).resolve())
    return {path for path in paths if path.is_dir()}


def _tools() -> list[Path]:
    """Compilers and libraries that were put elsewhere than under /usr."""
    compilers = filter(None, map(shutil.which, ("gcc", "g++", "nvcc")))
    found = [Path(path).resolve().parents[1] for path in compilers]
    found += map(Path, filter(os.path.isabs, os.environ.get("LD_LIBRARY_PATH", "").split(":")))
    if cuda := os.environ.get("CUDA_HOME"):
        found.append(Path(cuda))
    torch = importlib.util.find_spec("torch")  # does not import it
    if torch is not None and torch.origin is not None:
        found.append(Path(torch.origin).parents[1])
    return found


def _kernel_settings() -> list[Path]:
    """All of /proc that can be written but the processes, where CUDA names its threads."""
    entries = [e for e in os.scandir("/proc") if not e.name.isdigit() and not e.is_symlink()]
    return sorted(Path(e.path) for e in entries if e.is_dir() or e.stat().st_mode & 0o222)


@functools.cache
def _gpu_devices() -> list[Path]:
    """The nodes of the driver, which makes some only when asked; inside nobody can make any."""
    tool = shutil.which("nvidia-modprobe")
    if tool is not None and not Path("/dev/nvidia-uvm").exists():
        with contextlib.suppress(OSError):
            processes.run([tool, "-c", "0", "-u"], deadline_s=PROBE_S, output_bytes=2000)
    return sorted(Path("/dev").glob(GPU_DEVICES))


@functools.cache
def _sized() -> list[str]:
    """Before 0.8 bubblewrap has no option for it, and the kernel's own limit is half the memory."""
    finished = processes.run(["bwrap", "--help"], deadline_s=PROBE_S, output_bytes=32_000)
    return ["--size", str(SCRATCH_BYTES)] if "--size" in finished.output else []


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


def homes(scratch: Path) -> dict[str, str]:
    """Where a candidate and its tools write, as environment; its work folder is read-only."""
    return {
        "HOME": str(scratch),
        "TMPDIR": str(scratch),
        "TRITON_CACHE_DIR": str(scratch / "triton"),
    }


def limited(
    argv: list[str], *, cpu_s: int, memory_bytes: int, file_bytes: int = FILE_BYTES
) -> list[str]:
    """`argv` under rlimits and filter, in `environment()`; memory is that of each process."""
    limits = [str(cpu_s), str(memory_bytes), str(file_bytes)]
    return [*_LAUNCHER, "limits", *limits, *argv]


def main(arguments: list[str]) -> None:
    """Become the command, under limits or with what belongs to root closed."""
    what, *rest = arguments
    die_with_parent()
    if what == "closed":
        _close_to_root()
        argv = rest
    else:
        cpu_s, memory_bytes, file_bytes = map(int, rest[:3])
        limit_this_process(cpu_s=cpu_s, address_space_bytes=memory_bytes, file_bytes=file_bytes)
        argv = rest[3:]
    if tuple(argv[: len(_LAUNCHER)]) == _LAUNCHER:  # itself again: one start of Python is enough
        return main(argv[len(_LAUNCHER) :])
    os.execvp(argv[0], argv)


def _close_to_root() -> None:
    """Make read-only what bubblewrap cannot: devices and this process; drop what that takes.

    The devices are those of the machine, and root could take /dev/null from everybody by its mode;
    reading and writing them goes on. What is set up in /proc/1 the next candidates would inherit.
    """
    libc = ctypes.CDLL(None)
    process = b"/proc/1"
    libc.mount(process, process, None, _MS_BIND, None)
    devices = [*(Path("/dev", name) for name in OWN_DEVICES), *Path("/dev").glob(GPU_DEVICES)]
    for path in [process, *map(bytes, devices)]:
        kept = os.statvfs(path).f_flag & _MS_NO_MASK  # a namespace may not take these back
        libc.mount(None, path, None, _MS_REMOUNT | _MS_BIND | _MS_RDONLY | kept, None)
    header, none = struct.pack("Ii", _CAPABILITY_VERSION, 0), bytes(24)
    if libc.capset(header, none) != 0:
        raise OSError("the capabilities could not be dropped")


def limit_this_process(
    *, cpu_s: int, address_space_bytes: int | None, file_bytes: int = FILE_BYTES
) -> None:
    """rlimits and filter of untrusted code; called in the child before that code is loaded."""
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, file_bytes)
    _limit(resource.RLIMIT_NPROC, PROCESSES)
    _limit(resource.RLIMIT_CPU, cpu_s)
    if address_space_bytes is not None:
        _limit(resource.RLIMIT_AS, _address_space_now() + address_space_bytes)
    with contextlib.suppress(OSError):  # who fills the memory by many processes is killed first
        Path("/proc/self/oom_score_adj").write_text("1000")
    seccomp.install()


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
    """Remove everything in a folder but the names to keep: words for the next candidate.

    Folders are brought up to the top before they are removed: a tree may be deeper than any
    recursion or path may be long, and closed to its owner. Ends when nothing more can be removed.
    """
    for turn in itertools.count():
        entries = [entry for entry in os.scandir(folder) if entry.name not in keep]
        if not sum(_remove(entry, folder, f"{turn}-{n}") for n, entry in enumerate(entries)):
            break
    for name in os.listxattr(folder):  # words can stand on the folder itself
        os.removexattr(folder, name)
    os.chmod(folder, 0o700)
    os.utime(folder, (0, 0))


def _remove(entry: os.DirEntry[str], folder: Path, name: str) -> bool:
    """Whether the entry is gone; folders in it are in `folder` now, under `name` and a number."""
    try:
        if not entry.is_dir(follow_symlinks=False):
            os.unlink(entry.path)
            return True
        os.chmod(entry.path, 0o700)
        for number, inner in enumerate(os.scandir(entry.path)):
            if inner.is_dir(follow_symlinks=False):
                os.chmod(inner.path, 0o700)
                os.rename(inner.path, folder / f"{name}-{number}")
            else:
                os.unlink(inner.path)
        os.rmdir(entry.path)
    except OSError:
        return False
    return True


def adopt_orphans() -> None:
    """Descendants whose parent dies become ours, setsid and double fork included."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> int:
    """Kill and reap everything below this process; returns how many processes there were.

    Orphans arrive here as their parents die, so when there is no child left the tree is gone.
    """
    killed = 0
    while True:
        kill_tree()
        try:
            os.waitpid(-1, 0)
            killed += 1
            while os.waitpid(-1, os.WNOHANG)[0]:
                killed += 1
        except ChildProcessError:
            return killed


def kill_tree() -> None:
    """SIGKILL to all at once where this is the first process of a namespace: no fork outruns that.

    Elsewhere what a look into /proc finds below us; what was born meanwhile dies in the next round.
    """
    if os.getpid() == 1:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        return
    parents = _parents()
    below = {os.getpid()}
    while born := {pid for pid, parent in parents.items() if parent in below} - below:
        below |= born
    for pid in below - {os.getpid()}:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """Each process in sight and its parent, zombies included."""
    found = {}
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            status = Path(entry.path, "stat").read_text()
            found[int(entry.name)] = int(status.rpartition(")")[2].split()[1])
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
