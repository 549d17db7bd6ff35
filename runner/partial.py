"""A run under way on the command line: the folder beside its archive, `F.warpdeck.zip.partial`.

Owns what lies there: the log, the lock of whoever drives the run, and what people ask of it. The
folder outlives a killed driver, so that another one can go on, and goes once the archive is there.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from runner import requests
from runner.events import ControlAction, ControlPayload, Event
from runner.log import FileLog
from runner.spec import Budgets, RunSpec, SpecError
from runner.state import RunState
from runner.wire import WireError, canonical, from_json, to_json

SUFFIX = ".partial"
LOCK_S = 1.0  # whoever asks whether a run is driven holds its lock for a moment


class Partial:
    """The folder of the run whose archive will be `output`."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.folder = output.with_name(output.name + SUFFIX)
        self.requests = RequestFile(self.folder / "requests.jsonl")

    @property
    def exists(self) -> bool:
        return self.folder.is_dir()

    def start(self) -> None:
        """Make the folder; raises SpecError if a run that did not end lies there."""
        try:
            self.folder.mkdir()
        except FileExistsError:
            problem = f"{self.folder} holds a run that did not end."
            remedy = "Go on with it by --resume, or remove that folder."
            raise SpecError("output", problem, remedy) from None

    def check(self, spec: RunSpec) -> None:
        """Raises SpecError unless a run lies here that was started with `spec`."""
        if not self.exists:
            problem = f"{self.folder} does not exist, so no run was interrupted there."
            raise SpecError("resume", problem, "Leave --resume out to start one.")
        begun = self.state().spec
        if begun is None or begun == spec:
            return
        other = [name for name in vars(spec) if getattr(spec, name) != getattr(begun, name)]
        problem = f"the run was started with another {', '.join(other)}."
        remedy = "Give the arguments it was started with; `control … extend` changes budgets."
        raise SpecError("resume", problem, remedy)

    def log(
        self, watch: Callable[[Event], None], overhear: Callable[[str], None] = lambda text: None
    ) -> FileLog:
        """The run's log, to be written by one driver: see `held`."""
        return FileLog(
            self.folder, self.state().run or str(uuid.uuid4()), watch=watch, overhear=overhear
        )

    def state(self) -> RunState:
        """What the log says so far; it may be growing."""
        return RunState.from_events(_whole_events(self.folder / "events.jsonl"))

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Be the one driver; raises SpecError where another process is."""
        descriptor = os.open(self.folder / "driver.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        try:
            until = time.monotonic() + LOCK_S
            while not _locked(descriptor, fcntl.LOCK_EX):
                if time.monotonic() > until:
                    problem = f"another process is driving the run of {self.output}."
                    remedy = "Wait for it, or ask it to stop by `control … stop`."
                    raise SpecError("output", problem, remedy)
                time.sleep(LOCK_S / 20)
            yield
        finally:
            os.close(descriptor)

    @property
    def driven(self) -> bool:
        """True while a process drives the run."""
        try:
            descriptor = os.open(self.folder / "driver.lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _locked(descriptor, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)

    def ask(
        self, action: ControlAction, by: str, text: str = "", limits: dict[str, float] | None = None
    ) -> ControlPayload:
        """Add a request for whoever drives the run; raises SpecError when it cannot be had.

        `limits` are the new ones of an extension, by their field of Budgets; others stay.
        """
        if not self.driven:
            problem = f"nobody drives a run of {self.output}."
            remedy = "Name the archive of a run under way; a killed one goes on by --resume."
            raise SpecError("archive", problem, remedy)
        state = self.state()
        spec = state.spec
        if spec is None:
            raise SpecError("archive", "the run is only just starting.", "Ask again in a moment.")

        def make(earlier: tuple[ControlPayload, ...]) -> ControlPayload:
            budgets = None
            if action is ControlAction.extend:
                now = requests.limits(spec, state, earlier)
                budgets = Budgets(**{**vars(now), **(limits or {})})
                requests.check_extension(spec, state, budgets, earlier)
            wanted = ControlPayload(action, by, text.strip(), budgets, len(earlier) + 1)
            requests.check(spec, wanted, earlier)
            return wanted

        return self.requests.add(make)

    def remove(self) -> None:
        shutil.rmtree(self.folder)


class RequestFile:
    """Requests of people, one a line, numbered from 1 by their line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, make: Callable[[tuple[ControlPayload, ...]], ControlPayload]) -> ControlPayload:
        """Append what `make` makes of the requests before it; whole, or not at all."""
        with self._path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            made = make(_requests(file))
            _drop_torn_line(file)
            file.write(canonical(to_json(made)).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        return made

    def first_after(self, number: int) -> ControlPayload | None:
        """The first request whose number is above `number`."""
        try:
            with self._path.open("rb") as file:
                waiting = (each for each in _requests(file) if each.request > number)
                return next(waiting, None)
        except FileNotFoundError:
            return None


def _requests(file: IO[bytes]) -> tuple[ControlPayload, ...]:
    """The whole lines; raises SpecError for one that is no request."""
    file.seek(0)
    found = []
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):
            break
        try:
            found.append(from_json(ControlPayload, json.loads(line), "request"))
        except (ValueError, WireError) as error:
            problem = f"line {number} of requests.jsonl is no request: {error}."
            raise SpecError("requests", problem, "Remove that line.") from error
    return tuple(found)


def _drop_torn_line(file: IO[bytes]) -> None:
    """A killed writer may leave half a line; nobody has read it as a request."""
    file.seek(0)
    content = file.read()
    file.truncate(content.rfind(b"\n") + 1)


def _whole_events(path: Path) -> Iterator[Event]:
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield from_json(Event, json.loads(line))


def _locked(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
