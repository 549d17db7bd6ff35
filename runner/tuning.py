"""The tuning space of a problem in one language: its zoo kernels and their legal constants.

It knows which settings exist, how two of them differ and which source a setting gives. Which one to
try next is an agent's business.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kernels.catalog import Parameter, Problem, ZooKernel
from runner import languages
from runner.events import CandidatePayload


@dataclass(frozen=True)
class Setting:
    """A zoo kernel with one legal value for each of its parameters, in their order."""

    kernel: ZooKernel
    values: tuple[int, ...]

    @property
    def key(self) -> tuple[str, tuple[int, ...]]:
        return self.kernel.name, self.values

    @property
    def constants(self) -> dict[str, int]:
        names = (parameter.name for parameter in self.kernel.parameters)
        return dict(zip(names, self.values, strict=True))

    @property
    def source(self) -> str:
        language = languages.get(self.kernel.language)
        return language.set_constants(self.kernel.source, self.constants)

    def changes_from(self, other: Setting) -> tuple[Change, ...]:
        """What differs from a setting of the same kernel."""
        rows = zip(self.kernel.parameters, other.values, self.values, strict=True)
        return tuple(Change(parameter, old, new) for parameter, old, new in rows if old != new)

    def distance(self, other: Setting) -> int:
        """The number of differing constants; another kernel is further than any constant."""
        if self.kernel.name != other.kernel.name:
            return len(self.kernel.parameters) + len(other.kernel.parameters) + 1
        return len(self.changes_from(other))


@dataclass(frozen=True)
class Change:
    parameter: Parameter
    old: int
    new: int

    def __str__(self) -> str:
        return f"{self.parameter.name} {self.old} → {self.new}"


@dataclass(frozen=True)
class Space:
    kernels: tuple[ZooKernel, ...]

    @classmethod
    def of(cls, problem: Problem, language: str) -> Space:
        return cls(problem.kernels(language))

    @property
    def size(self) -> int:
        return sum(math.prod(len(p.values) for p in kernel.parameters) for kernel in self.kernels)

    def kernel(self, name: str) -> ZooKernel | None:
        return next((kernel for kernel in self.kernels if kernel.name == name), None)

    def setting_of(self, candidate: CandidatePayload) -> Setting | None:
        """The setting a candidate was written with; None if it lies outside this space."""
        kernel, constants = self.kernel(candidate.kernel), candidate.constants
        if kernel is None or any(constants.get(p.name) not in p.values for p in kernel.parameters):
            return None
        return Setting(kernel, tuple(constants[p.name] for p in kernel.parameters))

    def remaining(
        self, tried: Collection[tuple[str, tuple[int, ...]]], near: Setting
    ) -> Iterator[Setting]:
        """Untried settings, lazily: the neighbours of `near` first, then all in order."""
        for setting in itertools.chain(_neighbours(near), self._all(near.kernel)):
            if setting.key not in tried:
                yield setting

    def _all(self, first: ZooKernel) -> Iterator[Setting]:
        for kernel in sorted(self.kernels, key=lambda kernel: kernel.name != first.name):
            for values in itertools.product(*(p.values for p in kernel.parameters)):
                yield Setting(kernel, values)


def default_setting(kernel: ZooKernel) -> Setting:
    return Setting(kernel, tuple(parameter.default for parameter in kernel.parameters))


def nearest_setting(kernel: ZooKernel, constants: Mapping[str, int]) -> Setting:
    """The legal setting closest to `constants`; what they leave out keeps its default."""
    values = []
    for parameter in kernel.parameters:
        wanted = constants.get(parameter.name, parameter.default)
        values.append(min(parameter.values, key=lambda value: (abs(value - wanted), value)))
    return Setting(kernel, tuple(values))


def _neighbours(setting: Setting) -> Iterator[Setting]:
    """Every setting that differs in one constant."""
    for place, parameter in enumerate(setting.kernel.parameters):
        for value in parameter.values:
            values = (*setting.values[:place], value, *setting.values[place + 1 :])
            if values != setting.values:
                yield Setting(setting.kernel, values)
