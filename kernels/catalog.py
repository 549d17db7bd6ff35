"""Reads `problems/<slug>/problem.toml`: the contract of each problem, and its zoo of kernels.

A problem is a folder and nothing else registers it. This module never imports torch or a kernel,
so the web, the command line and a bare host can all list problems at once.
"""

from __future__ import annotations

import ast
import functools
import operator
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent / "problems"
ITEM_SIZE = {"fp32": 4, "bf16": 2, "fp16": 2, "int64": 8}
C_TYPE = {"fp32": "float", "bf16": "uint16_t", "fp16": "uint16_t", "int64": "int64_t"}
DRAWS = {
    "normal": "N(0, 1), independent",
    "uniform": "U(0, 1), independent",
    "wide": "s · 2^u with a random sign s and u ~ U(−20, 20): twelve decimal orders of magnitude",
    "tiny": "N(0, 1) · t with t the smallest normal number of the dtype: some 68% are subnormal",
    "equal": "one N(0, 1) value per row (all dimensions but the last), repeated along the row",
    "masked": "N(0, 1), but −inf outside start ≤ j < end along the last dimension, start drawn "
    "uniformly from 0…N−1 and end from start+1…N for each row; in rows of flat index 3 mod 4 each "
    "position inside, except start itself, is −inf too with probability ½",
}
"""What inputs may look like: name → meaning. Values are drawn in float64 (or exactly), then rounded
once to the argument's dtype; the reference sees the rounded values."""
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Pow: operator.pow,
}


class CatalogError(ValueError):
    """A `problem.toml` is not a valid contract; the message names file and field."""


class UnknownProblem(LookupError):
    def __init__(self, slug: str) -> None:
        super().__init__(f"no problem is called {slug!r}.")
        self.remedy = f"Use one of: {', '.join(slugs())}."


@dataclass(frozen=True)
class Argument:
    """A tensor of the contract. `shape` holds dimension names or integers; `draw` how inputs vary.

    `dtype` None means the dtype of the case.
    """

    name: str
    shape: tuple[str, ...]
    dtype: str | None = None
    draw: str = "normal"


@dataclass(frozen=True)
class Tolerance:
    """`norm` bounds ‖out−ref‖/‖ref‖, `element` bounds |out−ref| / (|ref| + rms(ref))."""

    norm: float
    element: float


@dataclass(frozen=True)
class Case:
    """One point of the contract. Scored cases are timed; the others are only checked.

    `flops` and `bytes_moved` (compulsory: each input read once, each output written once) are
    useful work. `draws` overrides an argument's draw for stress cases.
    """

    name: str
    sets: tuple[str, ...]
    dtype: str
    dims: dict[str, int]
    scored: bool
    flops: int
    bytes_moved: int
    draws: dict[str, str]
    note: str

    def shape(self, argument: Argument) -> tuple[int, ...]:
        return tuple(int(size) if size.isdigit() else self.dims[size] for size in argument.shape)

    def dtype_of(self, argument: Argument) -> str:
        return argument.dtype or self.dtype


@dataclass(frozen=True)
class Parameter:
    """A tuning constant of a zoo kernel: legal values, the default, and why it matters."""

    name: str
    values: tuple[int, ...]
    default: int
    why: str


@dataclass(frozen=True)
class ZooKernel:
    """A reviewed kernel: a whole source file whose tuning constants can be rewritten."""

    name: str
    path: Path
    language: str
    idea: str
    scope: str
    parameters: tuple[Parameter, ...]

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")


@dataclass(frozen=True)
class Problem:
    slug: str
    title: str
    maths: str
    summary: str
    teaches: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    tolerances: dict[str, Tolerance]
    cases: tuple[Case, ...]
    zoo: tuple[ZooKernel, ...]

    @property
    def reference_path(self) -> Path:
        return ROOT / self.slug / "reference.py"

    def case_sets(self, kind: str) -> list[str]:
        """The case sets for a device kind: `host…` sets run on the host, `gpu…` sets on CUDA."""
        prefix = {"host": "host", "cuda": "gpu"}[kind]
        names = {name for case in self.cases for name in case.sets}
        return sorted(name for name in names if name.startswith(prefix))

    def cases_in(self, case_set: str) -> tuple[Case, ...]:
        return tuple(case for case in self.cases if case_set in case.sets)

    def kernels(self, language: str) -> tuple[ZooKernel, ...]:
        return tuple(kernel for kernel in self.zoo if kernel.language == language)

    def cpp_symbol(self, dtype: str) -> str:
        return f"{self.slug}_{dtype}"

    def cpp_prototype(self, dtype: str) -> str:
        """The C function a C++ or CUDA candidate exports for a dtype.

        Inputs in order as const pointers, then outputs, then every dimension in order of first
        appearance as int64_t. Tensors are contiguous, row-major; bf16 travels as its 16 raw bits.
        """
        pointers = [f"const {C_TYPE[a.dtype or dtype]} *{a.name}" for a in self.inputs]
        pointers += [f"{C_TYPE[a.dtype or dtype]} *{a.name}" for a in self.outputs]
        sizes = [f"int64_t {name}" for name in self.dimension_names]
        arguments = ", ".join(pointers + sizes)
        return f'extern "C" void {self.cpp_symbol(dtype)}({arguments})'

    @property
    def dimension_names(self) -> tuple[str, ...]:
        names = [size for a in self.inputs + self.outputs for size in a.shape if not size.isdigit()]
        return tuple(dict.fromkeys(names))


def slugs() -> list[str]:
    return sorted(path.parent.name for path in ROOT.glob("*/problem.toml"))


def load_all() -> list[Problem]:
    return [load_problem(slug) for slug in slugs()]


def load_problem(slug: str) -> Problem:
    """Raises UnknownProblem, or CatalogError when the file is not a valid contract."""
    if slug not in slugs():
        raise UnknownProblem(slug)
    return _load(ROOT / slug / "problem.toml")


@functools.cache
def _load(path: Path) -> Problem:
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
        return _problem(path.parent, raw)
    except (KeyError, TypeError, ValueError) as error:
        raise CatalogError(f"{path}: {type(error).__name__}: {error}") from error


def _problem(folder: Path, raw: dict[str, Any]) -> Problem:
    inputs = tuple(_argument(item) for item in raw["inputs"])
    outputs = tuple(_argument(item) for item in raw["outputs"])
    problem = Problem(
        slug=folder.name,
        title=raw["title"],
        maths=raw["maths"].strip(),
        summary=raw["summary"].strip(),
        teaches=raw["teaches"],
        inputs=inputs,
        outputs=outputs,
        tolerances={dtype: Tolerance(**item) for dtype, item in raw["tolerance"].items()},
        cases=tuple(_case(item, raw["cost"]) for item in raw["cases"]),
        zoo=tuple(_zoo_kernel(folder, item) for item in raw.get("zoo", [])),
    )
    for case in problem.cases:
        if case.dtype not in problem.tolerances:
            raise ValueError(f"case {case.name}: no tolerance for {case.dtype}")
        if missing := set(problem.dimension_names) - set(case.dims):
            raise ValueError(f"case {case.name}: dims lack {sorted(missing)}")
    return problem


def _argument(raw: dict[str, Any]) -> Argument:
    draw = raw.get("draw", "normal")
    if draw not in DRAWS:
        raise ValueError(f"argument {raw['name']}: draw {draw!r} is not one of {list(DRAWS)}")
    shape = tuple(str(size) for size in raw["shape"])
    return Argument(raw["name"], shape, raw.get("dtype"), draw)


def _case(raw: dict[str, Any], cost: dict[str, str]) -> Case:
    names = {**raw["dims"], "itemsize": ITEM_SIZE[raw["dtype"]]}
    draws = raw.get("draws", {})
    if unknown := set(draws.values()) - set(DRAWS):
        raise ValueError(f"case {raw['name']}: draws {sorted(unknown)} are not among {list(DRAWS)}")
    return Case(
        name=raw["name"],
        sets=tuple(raw["sets"]),
        dtype=raw["dtype"],
        dims=raw["dims"],
        scored=raw.get("scored", True),
        flops=evaluate_expression(cost["flops"], names),
        bytes_moved=evaluate_expression(cost["bytes"], names),
        draws=draws,
        note=raw.get("note", ""),
    )


def _zoo_kernel(folder: Path, raw: dict[str, Any]) -> ZooKernel:
    parameters = []
    for name, item in raw.get("parameters", {}).items():
        parameter = Parameter(name, tuple(item["values"]), item["default"], item["why"])
        if parameter.default not in parameter.values:
            raise ValueError(f"zoo {raw['name']}: default of {name} is not among its values")
        parameters.append(parameter)
    return ZooKernel(
        name=raw["name"],
        path=folder / "zoo" / raw["file"],
        language=raw["language"],
        idea=raw["idea"],
        scope=raw["scope"],
        parameters=tuple(parameters),
    )


def evaluate_expression(text: str, names: dict[str, int]) -> int:
    """An integer expression over dimension names: + - * // ** and parentheses, nothing else.

    >>> evaluate_expression("2 * M * N", {"M": 3, "N": 5})
    30
    """
    return _evaluate(ast.parse(text, mode="eval").body, names)


def _evaluate(node: ast.expr, names: dict[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return names[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        operate = _OPERATORS[type(node.op)]
        return int(operate(_evaluate(node.left, names), _evaluate(node.right, names)))
    raise ValueError(f"{ast.unparse(node)!r} is not an integer expression")
