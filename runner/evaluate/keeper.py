"""The parent's side of the zygotes: starts them, asks them for children, and ends both.

Owns processes, deadlines and output caps of one evaluation. It knows nothing of kernels: what the
messages mean is the session's business.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import secrets
import select
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner import sandbox
from runner.evaluate.channel import BadMessage, Channel, Message
from runner.processes import POLL_S, Cancelled, Drain

START_S = 120.0  # importing torch from a cold disk takes long
RESIDENT_USES = 50
RESIDENT_OUTPUT_BYTES = 64 * 1024
GROWTH_BYTES = 256 << 20
EXIT_S = 5.0  # a killed tree is gone within milliseconds; beyond this the zygote itself is killed
LOG = "zygote.log"
TRUSTED = ("referee", "baseline")  # roles that run our code alone
FOLDER_PREFIX = "warpdeck-work-"


class ZygoteDied(RuntimeError):
    """The zygote of `role` ended or talks nonsense; the next evaluation starts a new one."""

    def __init__(self, role: str, words: str) -> None:
        super().__init__(f"the {role}'s zygote: {words}")
        self.role = role
        self.words = words


class Stillborn(ZygoteDied):
    """It never started: that is nobody's candidate's fault."""


class DeadlinePassed(Exception):
    """The child did not answer in time."""


class ChildEnded(Exception):
    """The child ended instead of answering; `status` is its exit status, negative for a signal."""

    def __init__(self, status: int) -> None:
        super().__init__(exit_words(status))
        self.status = status


@dataclass(frozen=True)
class Reply:
    """What a child said, and how long the parent waited for it by its own clock."""

    message: Message
    elapsed_ns: int


@dataclass(frozen=True)
class Question:
    """What was asked and not yet answered."""

    nonce: str
    started_ns: int


@dataclass(frozen=True)
class Ending:
    """How a child's tree ended: `leftover` processes outlived the child and were killed."""

    status: int
    leftover: int
    output: str
    dropped_bytes: int


@dataclass
class Watch:
    """Deadline and cancel flag of one evaluation, checked wherever the parent waits."""

    deadline: float
    cancel: threading.Event | None = None

    def check(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled
        if self.left() <= 0:
            raise DeadlinePassed

    def left(self) -> float:
        return self.deadline - time.monotonic()


@dataclass(frozen=True)
class Kind:
    """What distinguishes zygotes. `device` is a GPU's UUID, or empty for the host."""

    role: str
    device: str = ""
    interpreted: bool = False

    @property
    def confined(self) -> bool:
        """Whether its children run code of a candidate."""
        return self.role not in TRUSTED


class Zygote:
    """One zygote process and the work folder its children may write to."""

    def __init__(self, kind: Kind, extra: dict[str, str]) -> None:
        self.kind = kind
        self.folder = WorkFolder()
        self.lock = threading.Lock()
        self.owner = os.getpid()
        self.kept: Child | None = None
        self.ready_bytes = 0
        self.control, theirs = Channel.pair()
        argv = [sys.executable, "-P", "-m", "runner.evaluate.zygote", "--role", kind.role]
        argv += ["--control", str(theirs.fileno())]
        if kind.confined:
            if sandbox.isolation().usable:
                argv += ["--scratch", str(sandbox.SCRATCH)]
            argv = sandbox.command(argv, self.folder.path, cuda=bool(kind.device))
        environment = sandbox.environment(self.folder.path, extra)
        try:
            self.process = _start(argv, environment, self.folder.path, theirs)
        except OSError as error:
            self.folder.remove()
            raise ZygoteDied(kind.role, f"it did not start: {error}") from error
        self.ready = False

    def await_ready(self) -> None:
        """Until torch is imported. Raises ZygoteDied."""
        if self.ready:
            return
        watch = Watch(time.monotonic() + START_S)
        with selectors.DefaultSelector() as selector:
            selector.register(self.control, selectors.EVENT_READ)
            while (message := self.control.take()) is None:
                if watch.left() <= 0 or self.process.poll() is not None:
                    raise self._stillborn()
                if selector.select(POLL_S) and not self.control.fill():
                    self.process.wait()
        if "ready" not in message:
            raise self._stillborn()
        self.ready, self.ready_bytes = True, _resident_bytes(self.process.pid)

    def _stillborn(self) -> Stillborn:
        words = self.last_words()
        self.stop()
        return Stillborn(self.kind.role, f"it did not start ({words})")

    def last_words(self) -> str:
        """How it ended, and the end of what it said; it is given a moment to end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=1)
        log = (self.folder.path / LOG).read_text(errors="replace")[-2000:].strip()
        return f"{exit_words(self.process.poll())}{': ' if log else ''}{log}"

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def fork(self, folder: Path, limits: Message | None, output_bytes: int) -> Child:
        """A fresh child; the caller holds `lock` until it has called `Child.end`."""
        channel, theirs = Channel.pair(takes_descriptors=not self.kind.confined)
        reading, writing = os.pipe()
        environment = {"TMPDIR": str(folder), "HOME": str(folder)}
        if self.kind.confined:
            environment["TRITON_CACHE_DIR"] = str(folder / "triton")
        request: Message = {"folder": str(folder), "environment": environment, "limits": limits}
        try:
            self.control.send(request, [theirs.fileno(), writing])
        except OSError as error:
            channel.close()
            os.close(reading)
            raise ZygoteDied(self.kind.role, f"it does not listen: {error}") from error
        finally:
            theirs.close()
            os.close(writing)
        return Child(self, channel, Drain(reading, output_bytes))

    @contextlib.contextmanager
    def resident(self) -> Iterator[Child]:
        """The child of a trusted role, kept from one evaluation to the next while all goes well.

        It runs our code alone, and what it has opened, a CUDA context above all, takes longer than
        most evaluations. After an exception, and after RESIDENT_USES, the next one is fresh.
        """
        child, self.kept = self.kept, None
        if child is not None and not child.at_rest:
            child.end()
            child = None
        child = child or self.fork(self.folder.path, None, RESIDENT_OUTPUT_BYTES)
        child.uses += 1
        try:
            yield child
        except BaseException:
            child.end()
            raise
        if child.uses < RESIDENT_USES and child.rested():
            self.kept = child
        else:
            child.end()

    def stop(self) -> None:
        """End it and everything below it; its folder is removed."""
        self.control.close()  # the zygote kills its child, then itself, when this end closes
        if self.owner == os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.folder.remove()
        if self.kept is not None:
            self.kept.close()
            self.kept = None

    @property
    def grown(self) -> bool:
        """Whether something has made it larger than it was when it was ready."""
        return _resident_bytes(self.process.pid) > self.ready_bytes + GROWTH_BYTES


def _resident_bytes(pid: int) -> int:
    """Memory of one process that lies in RAM; 0 where the kernel does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class Child:
    """One forked child: its channel, its output and its end."""

    def __init__(self, zygote: Zygote, channel: Channel, drain: Drain) -> None:
        self.zygote, self.channel, self.drain = zygote, channel, drain
        self.exit: Message | None = None
        self.uses = 0  # evaluations it has served
        self.selector = selectors.DefaultSelector()
        for source in (channel, zygote.control, drain.descriptor):
            self.selector.register(source, selectors.EVENT_READ)

    def ask(self, message: Message, watch: Watch, descriptors: Sequence[int] = ()) -> Reply:
        """Raises ChildEnded, DeadlinePassed, Cancelled, BadMessage or ZygoteDied."""
        return self.answer(self.post(message, watch, descriptors), watch)

    def post(self, message: Message, watch: Watch, descriptors: Sequence[int] = ()) -> Question:
        """Ask without waiting, so that two children work at the same time; raises as `ask`."""
        watch.check()
        if self.channel.pending:
            raise BadMessage("words that nobody asked for")
        nonce = secrets.token_hex(8)
        started = time.perf_counter_ns()
        try:
            self.channel.send({**message, "nonce": nonce}, descriptors)
        except OSError:
            raise self._ended(watch) from None
        return Question(nonce, started)

    def answer(self, question: Question, watch: Watch) -> Reply:
        """The answer to what was posted last; raises as `ask`."""
        while (reply := self.channel.take()) is None:
            if self.exit is not None and not self.channel.fill():
                raise ChildEnded(self.exit["exited"])
            if self.exit is None:
                self._wait(watch)
        elapsed_ns = time.perf_counter_ns() - question.started_ns
        if reply.pop("nonce", None) != question.nonce:
            raise BadMessage("an answer to no question")
        return Reply(reply, elapsed_ns)

    def _wait(self, watch: Watch) -> None:
        """Until anything happens: words of the child, output, its end, the deadline, a cancel."""
        for key, _ in self.selector.select(max(0.0, min(POLL_S, watch.left()))):
            if key.fileobj is self.channel:
                if not self.channel.fill():
                    self.selector.unregister(self.channel)
            elif key.fileobj is self.zygote.control:
                self._hear_zygote()
            else:
                self.drain.read()
                if not self.drain.open:
                    self.selector.unregister(self.drain.descriptor)
        watch.check()

    def _hear_zygote(self) -> None:
        if not self.zygote.control.fill():
            words = f"it ended while its child ran ({self.zygote.last_words()})"
            raise ZygoteDied(self.zygote.kind.role, words)
        message = self.zygote.control.take()
        if message is not None:
            if not isinstance(message.get("exited"), int):
                raise BadMessage(f"the zygote said {message}")
            self.exit = message

    def _ended(self, watch: Watch) -> ChildEnded:
        while self.exit is None:
            self._wait(watch)
        return ChildEnded(self.exit["exited"])

    def end(self) -> Ending:
        """Kill what is left of the child's tree and collect its output. Never raises for its state.

        If the zygote does not report within EXIT_S it is ended too, with everything below it.
        """
        try:
            if self.exit is None:
                self._kill()
            self.drain.rest()
            status, leftover = self.exit_status()
            return Ending(status, leftover, self.drain.text, self.drain.dropped_bytes)
        finally:
            self.close()

    def close(self) -> None:
        """Give back our ends of its channel and its output."""
        self.selector.close()
        self.channel.close()
        os.close(self.drain.descriptor)

    @property
    def at_rest(self) -> bool:
        """Alive and silent: nothing has come from it or its zygote that nobody asked for."""
        sources = [self.channel, self.zygote.control]
        return not select.select(sources, [], [], 0)[0] and not self.channel.pending

    def rested(self) -> bool:
        """Have it close its case; False when it cannot."""
        try:
            self.ask({"do": "close"}, Watch(time.monotonic() + EXIT_S))
        except (ChildEnded, DeadlinePassed, BadMessage, ZygoteDied):
            return False
        return self.at_rest

    def exit_status(self) -> tuple[int, int]:
        if self.exit is None:
            return -signal.SIGKILL, 0
        return self.exit["exited"], int(self.exit.get("leftover", 0))

    def _kill(self) -> None:
        if self._registered(self.channel):
            self.selector.unregister(self.channel)
        watch = Watch(time.monotonic() + EXIT_S)
        with contextlib.suppress(OSError):
            self.zygote.control.send({"do": "kill"})
        try:
            while self.exit is None:
                self._wait(watch)
        except (OSError, ZygoteDied, BadMessage, DeadlinePassed):
            self.zygote.stop()

    def _registered(self, source: Channel) -> bool:
        return any(key.fileobj is source for key in self.selector.get_map().values())


@dataclass
class WorkFolder:
    """A private folder, locked while its owner lives, so that a dead owner's is swept away."""

    path: Path = field(init=False)

    def __post_init__(self) -> None:
        sweep()
        self.path = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))
        self._lock: int | None = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    @contextlib.contextmanager
    def subfolder(self) -> Iterator[Path]:
        folder = Path(tempfile.mkdtemp(prefix="evaluation-", dir=self.path))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def remove(self) -> None:
        """May be called again: the number of its lock may then be that of another file."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def sweep() -> None:
    """Remove work folders whose owner was killed: nobody holds their lock."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER_PREFIX}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(descriptor)


def _start(
    argv: list[str], environment: dict[str, str], folder: Path, control: socket.socket
) -> subprocess.Popen[bytes]:
    """Start a process from a thread that lives as long as it does.

    Raises OSError. The kernel delivers "your parent died" when the starting *thread* ends. A
    worker's threads come and go, so each zygote gets a thread of its own that only waits for it.
    """
    started: list[subprocess.Popen[bytes] | OSError] = []  # one of them, once `ready` is set
    ready = threading.Event()

    def keep() -> None:
        try:
            log = os.open(folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            process = subprocess.Popen(
                argv,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[control.fileno()],
                start_new_session=True,
            )
        except OSError as error:
            started.append(error)
            ready.set()
            return
        os.close(log)
        started.append(process)
        ready.set()
        process.wait()

    threading.Thread(target=keep, name="zygote-keeper", daemon=True).start()
    ready.wait()
    control.close()
    result = started[0]
    if isinstance(result, OSError):
        raise result
    return result


_zygotes: dict[Kind, Zygote] = {}
_registry = threading.Lock()


def prepare(kind: Kind, extra: dict[str, str]) -> Zygote:
    """Start the zygote of a kind unless it runs; does not wait until it is ready."""
    with _registry:
        zygote = _zygotes.get(kind)
        if zygote is None or not zygote.usable:
            if zygote is not None:
                zygote.stop()
            zygote = _zygotes[kind] = Zygote(kind, extra)
        return zygote


@contextlib.contextmanager
def borrowed(
    kind: Kind, extra: dict[str, str], cancel: threading.Event | None = None
) -> Iterator[Zygote]:
    """The zygote of a kind, ours alone for the time: started lazily, replaced when it has died."""
    zygote = prepare(kind, extra)
    while not zygote.lock.acquire(timeout=POLL_S):
        if cancel is not None and cancel.is_set():
            raise Cancelled
    try:
        zygote.await_ready()
        yield zygote
    finally:
        if zygote.kind.confined and zygote.folder.path.is_dir():
            sandbox.empty(zygote.folder.path, keep=frozenset({LOG}))
        if zygote.grown:
            zygote.stop()
        zygote.lock.release()


def owned_folders() -> list[Path]:
    """The work folders of this process's zygotes."""
    with _registry:
        return [zygote.folder.path for zygote in _zygotes.values() if zygote.owner == os.getpid()]


@atexit.register
def stop_all() -> None:
    """End every zygote of this process; evaluate() starts new ones when it is called again."""
    with _registry:
        for zygote in _zygotes.values():
            if zygote.owner == os.getpid():
                zygote.stop()
        _zygotes.clear()


def exit_words(status: int | None) -> str:
    """`killed by SIGSEGV`, `exited with status 3`."""
    if status is None:
        return "still running"
    if status >= 0:
        return f"exited with status {status}"
    try:
        return f"killed by {signal.Signals(-status).name}"
    except ValueError:
        return f"killed by signal {-status}"
