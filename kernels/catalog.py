"""Reads `problems/<slug>/problem.toml`: the contract of each problem, and its zoo of kernels.

A problem is a folder and nothing else registers it. This module never imports torch or a kernel,
so the web, the command line and a bare host can all list problems at once.
"""

from __future__ import annotations

import ast
import functools
import operator
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernels.table import IDENTIFIER, FieldError, Table

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
"""What inputs may look like: name → meaning. Values are drawn in fp32 or better, then rounded once
to the argument's dtype; the reference sees the rounded values."""
LANGUAGES = ("cpp", "triton", "cuda")
SET_PREFIX = {"host": "host", "cuda": "gpu"}  # device kind → how the names of its case sets begin
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
    """A tensor of the contract. `shape` holds names of dimensions, or sizes such as "128".

    `dtype` None means the dtype of the case; `draw` is how its values vary, a key of DRAWS.
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
        prefix = SET_PREFIX[kind]
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
    return _load(ROOT / slug)


@functools.cache
def _load(folder: Path) -> Problem:
    return read_problem(folder)


def read_problem(folder: Path) -> Problem:
    """Read `folder/problem.toml`; CatalogError names the file and the field that is wrong."""
    path = folder / "problem.toml"
    try:
        return _problem(folder, Table(tomllib.loads(path.read_text(encoding="utf-8"))))
    except (OSError, ValueError) as error:
        raise CatalogError(f"{path}: {error}") from error


def _problem(folder: Path, table: Table) -> Problem:
    tolerances = table.table("tolerance")
    cost = table.table("cost")
    zoo = table.tables("zoo") if table.has("zoo") else []
    problem = Problem(
        slug=folder.name,
        title=table.text("title"),
        maths=table.text("maths"),
        summary=table.text("summary"),
        teaches=table.text("teaches"),
        inputs=tuple(_argument(item) for item in table.tables("inputs")),
        outputs=tuple(_argument(item) for item in table.tables("outputs")),
        tolerances={dtype: _tolerance(tolerances, dtype) for dtype in tolerances.raw},
        cases=tuple(_case(item, cost) for item in table.tables("cases")),
        zoo=tuple(_zoo_kernel(folder, item) for item in zoo),
    )
    cost.finish()
    table.finish()
    _check_names(problem)
    for position, case in enumerate(problem.cases):
        _check_case(problem, case, f"cases[{position}]")
    return problem


def _argument(table: Table) -> Argument:
    dtype = _one_of(table, "dtype", ITEM_SIZE) if table.has("dtype") else None
    draw = _one_of(table, "draw", DRAWS) if table.has("draw") else "normal"
    argument = Argument(table.text("name"), table.values("shape", str), dtype, draw)
    for name in (argument.name, *argument.shape):
        if not IDENTIFIER.fullmatch(name) and not (name.isdigit() and name is not argument.name):
            raise FieldError(table.path, f"{name!r} is neither a name nor a number.")
    table.finish()
    return argument


def _tolerance(tolerances: Table, dtype: str) -> Tolerance:
    if dtype not in ITEM_SIZE:
        raise FieldError(tolerances.at(dtype), f"is not one of {', '.join(ITEM_SIZE)}.")
    table = tolerances.table(dtype)
    tolerance = Tolerance(norm=table.value("norm", float), element=table.value("element", float))
    if not 0 < min(tolerance.norm, tolerance.element) <= max(tolerance.norm, tolerance.element) < 1:
        raise FieldError(table.path, "norm and element must lie between 0 and 1.")
    table.finish()
    return tolerance


def _case(table: Table, cost: Table) -> Case:
    dtype = _one_of(table, "dtype", ITEM_SIZE)
    dims = table.mapping("dims", int)
    names = {**dims, "itemsize": ITEM_SIZE[dtype]}
    case = Case(
        name=table.text("name"),
        sets=table.values("sets", str),
        dtype=dtype,
        dims=dims,
        scored=table.value("scored", bool) if table.has("scored") else True,
        flops=_cost(cost, "flops", names),
        bytes_moved=_cost(cost, "bytes", names),
        draws=table.mapping("draws", str),
        note=table.text("note") if table.has("note") else "",
    )
    table.finish()
    return case


def _cost(cost: Table, key: str, names: dict[str, int]) -> int:
    try:
        value = evaluate_expression(cost.text(key), names)
    except (KeyError, SyntaxError, ValueError, ZeroDivisionError) as error:
        raise FieldError(
            cost.at(key), f"cannot be computed from {sorted(names)}: {error}"
        ) from error
    if value <= 0:
        raise FieldError(cost.at(key), f"is {value} for {names}; useful work is positive.")
    return value


def _check_names(problem: Problem) -> None:
    groups = {
        "inputs and outputs": [item.name for item in problem.inputs + problem.outputs],
        "cases": [case.name for case in problem.cases],
        "zoo": [kernel.name for kernel in problem.zoo],
    }
    for field, names in groups.items():
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise FieldError(field, f"{', '.join(twice)} is named twice.")


def _check_case(problem: Problem, case: Case, path: str) -> None:
    """What a case must share with the rest of the contract."""
    if case.dtype not in problem.tolerances:
        raise FieldError(f"{path}.dtype", f"there is no tolerance for {case.dtype}.")
    if set(case.dims) != set(problem.dimension_names):
        wanted = ", ".join(problem.dimension_names)
        raise FieldError(f"{path}.dims", f"must give {wanted} and nothing else.")
    if min(case.dims.values(), default=1) < 1:
        raise FieldError(f"{path}.dims", "must be at least 1.")
    for name, draw in case.draws.items():
        if name not in {argument.name for argument in problem.inputs}:
            raise FieldError(f"{path}.draws.{name}", "is not an input.")
        if draw not in DRAWS:
            raise FieldError(f"{path}.draws.{name}", f"{draw!r} is not one of {', '.join(DRAWS)}.")
    for name in case.sets:
        if not name.startswith(tuple(SET_PREFIX.values())):
            raise FieldError(f"{path}.sets", f"{name!r} must begin with host or gpu.")
        if not any(other.scored for other in problem.cases_in(name)):
            raise FieldError(f"{path}.sets", f"{name!r} holds no scored case.")


def _zoo_kernel(folder: Path, table: Table) -> ZooKernel:
    parameters: list[Parameter] = []
    if table.has("parameters"):
        space = table.table("parameters")
        parameters = [_parameter(space.table(name), name) for name in space.raw]
    kernel = ZooKernel(
        name=table.text("name"),
        path=folder / "zoo" / table.text("file"),
        language=_one_of(table, "language", LANGUAGES),
        idea=table.text("idea"),
        scope=table.text("scope"),
        parameters=tuple(parameters),
    )
    if not kernel.path.is_file():
        raise FieldError(table.at("file"), f"there is no {kernel.path}.")
    table.finish()
    return kernel


def _parameter(table: Table, name: str) -> Parameter:
    values, default = table.values("values", int), table.value("default", int)
    if default not in values:
        raise FieldError(table.at("default"), f"{default} is not among {list(values)}.")
    if len(set(values)) != len(values):
        raise FieldError(table.at("values"), "holds a value twice.")
    parameter = Parameter(name, values, default, table.text("why"))
    table.finish()
    return parameter


def _one_of(table: Table, key: str, choices: Iterable[str]) -> str:
    value = table.text(key)
    if value not in choices:
        raise FieldError(table.at(key), f"{value!r} is not one of {', '.join(choices)}.")
    return value


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
