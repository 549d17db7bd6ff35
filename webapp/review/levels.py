"""The levels of a candidate's kernels, one window of one text at a time.

Levels lie in an artifact that may come from a stranger's archive: unpacking is bounded, and what
cannot be shown is said with its reason. Compares nothing; see `level_diff`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import urlencode

from django.urls import reverse

from runner.analysis import stored
from runner.analysis.levels import Level, Levels
from webapp.review.analyses import Analysed
from webapp.review.dialects import DIALECTS
from webapp.review.resources import keyed
from webapp.review.source import Line, plain_line
from webapp.runs import store
from webapp.runs.models import Candidate

WINDOW_LINES = 400
SHOWN_CHARACTERS = 1_000  # of one line; the download has the rest
OF_LANGUAGE = {
    "triton": ("ttir", "ttgir", "llir", "ptx", "sass"),
    "cuda": ("ptx", "sass"),
    "cpp": ("asm",),
}


class NoLevels(LookupError):
    """There is nothing to show; the message says of which candidate, and why."""


@dataclass(frozen=True)
class TextLine:
    """A line of a level, the source line that it is from, how many characters are left out."""

    line: Line
    source: int | None
    withheld: int


@dataclass(frozen=True)
class Choice:
    """A tab or an entry of a list: where it leads as a page and as a fragment."""

    name: str
    page: str
    fragment: str
    current: bool


def level_names(language: str) -> tuple[str, ...]:
    """The levels of a language in the order of compilation."""
    return OF_LANGUAGE.get(language, ())


def title_of(name: str) -> str:
    return DIALECTS[name].title if name in DIALECTS else name


def load_levels(analysed: Analysed | None, number: int) -> tuple[Levels, ...]:
    """Every kernel of an analysis of candidate `number`. Raises NoLevels."""
    if analysed is None:
        raise NoLevels(f"c{number} was not analysed, so nothing of it was compiled here.")
    if not analysed.levels_sha256:
        words = analysed.payload.reason or f"its analysis ended as {analysed.payload.verdict}"
        raise NoLevels(f"There are no levels of c{number}: {words}")
    if analysed.levels_size > stored.MAX_BYTES:
        raise NoLevels(f"The levels of c{number} are more than {stored.MAX_BYTES:,} bytes.")
    try:
        return stored.unpack(store.read(analysed.levels_sha256))
    except store.MissingArtifact as error:
        remedy = "Import the run's archive again to bring them back."
        raise NoLevels(f"The levels of c{number} are not here: {error}. {remedy}") from error
    except ValueError as error:
        raise NoLevels(f"The levels of c{number} cannot be read: {error}.") from error


def find_level(levels: Levels, name: str, number: int) -> Level:
    """Raises NoLevels for one that this kernel does not have."""
    try:
        return levels.level(name)
    except KeyError:
        have = ", ".join(title_of(level.name) for level in levels.levels) or "nothing"
        words = f"{levels.kernel} of c{number} has no {title_of(name)}, only {have}."
        raise NoLevels(words) from None


class LevelView:
    """One window of one level, as an address asks for it. `problem` says why there is none."""

    def __init__(
        self,
        candidate: Candidate,
        analysed: Analysed | None,
        *,
        level: str = "",
        kernel: str = "",
        start: int = 1,
        source_line: int = 0,
    ) -> None:
        self.candidate, self.analysed = candidate, analysed
        self.asked_level, self.asked_kernel = level, kernel
        self.asked_start, self.source_line = start, source_line
        self.problem = ""
        self.level: Level | None = None
        self.kernels: dict[str, Levels] = {}
        if level:
            try:
                self._open()
            except NoLevels as error:
                self.problem = str(error)

    def _open(self) -> None:
        found = load_levels(self.analysed, self.candidate.number)
        self.kernels = dict(zip(keyed([each.kernel for each in found]), found, strict=True))
        if not found:
            raise NoLevels(f"The analysis of c{self.candidate.number} kept no kernel.")
        if self.asked_kernel and self.asked_kernel not in self.kernels:
            raise NoLevels(f"c{self.candidate.number} has no kernel {self.asked_kernel[:80]!r}.")
        self.level = find_level(self.kernels[self.kernel], self.asked_level, self.candidate.number)

    @property
    def open(self) -> bool:
        return bool(self.asked_level)

    @property
    def kernel(self) -> str:
        """The key of the kernel that is shown: the first, unless another was asked for."""
        return self.asked_kernel or next(iter(self.kernels), "")

    @property
    def title(self) -> str:
        return title_of(self.asked_level)

    @cached_property
    def _texts(self) -> list[str]:
        texts = self.level.text.split("\n") if self.level else []
        return texts[:-1] if texts and not texts[-1] else texts

    @property
    def total(self) -> int:
        return len(self._texts)

    @property
    def size(self) -> int:
        return len(self.level.text.encode()) if self.level else 0

    @cached_property
    def start(self) -> int:
        """The first line of the window that holds the line asked for, counted from 1."""
        wanted = min(max(1, self.asked_start), max(1, self.total))
        if self.level and self.source_line:
            lines = self.level.lines.items()
            wanted = min((line for line, source in lines if source == self.source_line), default=1)
        return (max(1, min(wanted, self.total)) - 1) // WINDOW_LINES * WINDOW_LINES + 1

    @property
    def end(self) -> int:
        return min(self.total, self.start + WINDOW_LINES - 1)

    @cached_property
    def lines(self) -> list[TextLine]:
        shown = self._texts[self.start - 1 : self.end]
        sources = self.level.lines if self.level else {}
        return [
            TextLine(
                plain_line(number, text[:SHOWN_CHARACTERS]),
                sources.get(number),
                max(0, len(text) - SHOWN_CHARACTERS),
            )
            for number, text in enumerate(shown, self.start)
        ]

    @property
    def tabs(self) -> list[Choice]:
        """The levels of this candidate's language, whether they are there or not."""
        return [
            self._choice(title_of(name), level=name, current=name == self.asked_level)
            for name in level_names(self.candidate.language)
        ]

    @property
    def kernel_choices(self) -> list[Choice]:
        return [self._choice(key, kernel=key, current=key == self.kernel) for key in self.kernels]

    @property
    def before(self) -> Choice | None:
        if self.start == 1:
            return None
        return self._choice("earlier", start=max(1, self.start - WINDOW_LINES))

    @property
    def after(self) -> Choice | None:
        return self._choice("later", start=self.end + 1) if self.end < self.total else None

    @property
    def here(self) -> Choice:
        return self._choice(self.title)

    @property
    def closed(self) -> Choice:
        return self._choice("source alone", level="", current=not self.open)

    @property
    def download(self) -> str:
        return f"{self._choice('').fragment}&download=1"

    def _choice(self, name: str, *, current: bool = False, **changed: object) -> Choice:
        asked: dict[str, object] = {"level": self.asked_level, "kernel": self.asked_kernel}
        if self.analysed and (changed.get("level") or self.asked_level):
            asked["analysis"] = self.analysed.seq
        asked |= changed
        asked["from"] = asked.pop("start", "")
        query = urlencode({key: value for key, value in asked.items() if value})
        arguments = [self.candidate.run_id, self.candidate.number]
        page = reverse("candidate", args=arguments)
        fragment = reverse("candidate-levels", args=arguments)
        return Choice(name, f"{page}?{query}" if query else page, f"{fragment}?{query}", current)
