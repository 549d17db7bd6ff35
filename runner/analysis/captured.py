"""What the analysis child writes down of a candidate: launches, compiled kernels, what went wrong.

Plain dataclasses that travel as JSON from the sandbox to the parent. The child is not trusted: the
parent checks types and sizes, and what it makes of the texts is advice, not evidence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

LARGEST = 1 << 64  # of an integer argument


def _between(name: str, *ascending: int) -> None:
    """The first and the last bound all others. Raises ValueError."""
    if not all(ascending[0] <= value <= ascending[-1] for value in ascending):
        raise ValueError(f"{name} is out of range")


class TroubleKind(StrEnum):
    """Why a capture ended early. `limit`: the stand-in device lacks what was asked of it."""

    load = "load"
    run = "run"
    compile = "compile"
    resources = "resources"
    limit = "limit"


@dataclass(frozen=True)
class Trouble:
    """`line` is the innermost one of the candidate's file, where there is one."""

    kind: TroubleKind
    message: str
    line: int | None = None


@dataclass(frozen=True)
class Launch:
    """One launch of the kernel with this key. `scalars` are its run-time integers by name."""

    key: str
    grid: tuple[int, int, int]
    line: int | None
    in_thread: bool
    scalars: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _between("grid", 0, min(self.grid), max(self.grid), LARGEST)
        _between("scalars", -LARGEST, *self.scalars.values(), LARGEST)


@dataclass(frozen=True)
class CompiledKernel:
    """One specialisation of one kernel for one target; `cubin` is base64, texts are UTF-8.

    `line` is that of its `def`. `shared` are the dynamic bytes a block asks for at launch.
    """

    key: str
    name: str
    line: int | None
    num_warps: int
    num_ctas: int
    num_stages: int
    shared: int
    ttir: str
    ttgir: str
    llir: str
    ptx: str
    cubin: str
    sass: str
    ptxas: str

    def __post_init__(self) -> None:
        _between("num_warps", 1, self.num_warps, 64)
        _between("num_ctas", 1, self.num_ctas, 32)
        _between("shared", 0, self.shared, LARGEST)


@dataclass(frozen=True)
class Autotuned:
    """`tried` configurations failed to fit before the chosen one; the rest was not looked at."""

    kernel: str
    configurations: int
    tried: int
    chosen: str


@dataclass(frozen=True)
class Captured:
    """`assumed` are the questions to the device that a stand-in answered.

    `kernels_left` counts the compiled kernels that were too many to look at.
    `products` names the dense products of torch that were shaped and not computed.
    """

    kernels: tuple[CompiledKernel, ...]
    launches: tuple[Launch, ...]
    autotuned: tuple[Autotuned, ...]
    assumed: tuple[str, ...]
    products: tuple[str, ...]
    kernels_left: int
    threads_left: int
    thread_errors: tuple[str, ...]
    trouble: Trouble | None = None
