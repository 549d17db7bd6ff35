"""Launches in the corrected interpreter: arguments, grid, and which of its programs are run.

Owns the changes to triton's modules in a process that only interprets and is thrown away
afterwards: a simulation's, which watches memory, or a candidate's, evaluated without a GPU.
What an operation computes is `interpreter`'s, what an access means is its address space's.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import time
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton.runtime import interpreter as original
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import JITFunction, TensorWrapper, mangle_type

from runner.analysis import interpreter_hints, interpreter_reduce
from runner.analysis.address_space import AddressSpace
from runner.analysis.interpreter import Builder, Unsupported

LAUNCH_BUDGET_S = 10.0  # a larger grid is sampled
PROBE_S = 0.5  # before it is known how long a program takes
MOST_PROGRAMS = 65536
AND, OR, NOT = "_simulated_and", "_simulated_or", "_simulated_not"  # no kernel has such names
ASSUMED_REGISTERS, ASSUMED_SHARED_BYTES = 32, 1024  # nothing is compiled here


@dataclass
class Launch:
    """One launch of a kernel: how many of its programs there are, and how many were run."""

    kernel: str
    grid: tuple[int, int, int]
    programs: int
    simulated: int = 0


@dataclass
class Simulation:
    """What one installed interpreter has done; `assumed` are questions it could only guess at.

    `sampled`: of a grid that would take too long only some programs are run.
    """

    memory: AddressSpace
    sampled: bool = True
    launches: list[Launch] = field(default_factory=list)
    tuned: list[str] = field(default_factory=list)
    assumed: dict[str, None] = field(default_factory=dict)


class Compiled:
    """What a launch or warm-up returns on a device: its resources are asked for to size a grid."""

    n_spills, n_max_threads = 0, 1024
    asm: dict[str, str] = {}

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation, self.name = simulation, name

    def _init_handles(self) -> None:
        return None

    @property
    def n_regs(self) -> int:
        self.simulation.assumed["registers of a kernel"] = None
        return ASSUMED_REGISTERS

    @property
    def metadata(self) -> Any:
        self.simulation.assumed["shared memory of a kernel"] = None
        return types.SimpleNamespace(shared=ASSUMED_SHARED_BYTES, name=self.name)


def install(memory: AddressSpace, *, sampled: bool = True) -> Simulation:
    """Make every kernel that is defined from now on run here. Not undone: the process ends."""
    simulation = Simulation(memory, sampled)
    builder = Builder(memory)
    original.interpreter_builder = builder
    original.interpreter_semantic = original.TritonSemantic(builder)
    _patch_language(memory)
    original._implicit_cvt = _converter(memory)
    original.FunctionRewriter.ast_transformer = Rewriter()
    for name, function in _LOGIC.items():
        setattr(original, name, function)  # kernels get these among their globals
    original.GridExecutor.__call__ = _launcher(simulation, builder)
    original.InterpretedFunction.run = _runner(simulation, original.InterpretedFunction.run)
    original.InterpretedFunction.__call__ = _call_device_function
    JITFunction.run = _refuse_compiled
    triton.runtime.autotuner.Autotuner._bench = _first_configuration(simulation)
    return simulation


def _patch_language(memory: AddressSpace) -> None:
    """Once for good, where the original patches anew for every call of a device function."""
    everywhere = types.SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    original._patch_lang(everywhere)
    original._patch_lang = lambda function: original._LangPatchScope()
    for module in (tl, tl.core):
        module.reduce = interpreter_reduce.reduce
        module.associative_scan = interpreter_reduce.associative_scan
        for hint, broken in interpreter_hints.BROKEN.items():
            setattr(module, hint, interpreter_hints.checked(hint, broken, memory))
    _patch_libdevice()


def _patch_libdevice() -> None:
    """Give libdevice's functions the interpreter's semantic, in both modules that name them."""
    try:
        real = importlib.import_module("triton.language.extra.cuda.libdevice")
        names = importlib.import_module("triton.language.extra.libdevice")
    except ImportError:
        return
    for name, function in inspect.getmembers(real, tl.core.is_builtin):
        bound = _bound(function)
        setattr(real, name, bound)
        if hasattr(names, name):
            setattr(names, name, bound)


def _bound(function: Any) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        keywords.pop("_semantic", None)
        return function(*arguments, _semantic=original.interpreter_semantic, **keywords)

    return call


def _converter(memory: AddressSpace) -> Any:
    """Kernel arguments as the interpreter sees them; tensors get the address space's addresses."""
    convert = original._implicit_cvt

    def converted(argument: Any, name: str = "") -> Any:
        if isinstance(argument, bool):
            return tl.core.tensor(TensorHandle(np.array([argument]), tl.int1), tl.int1)
        if not hasattr(argument, "data_ptr"):
            return convert(argument)
        tensor = argument.base if isinstance(argument, TensorWrapper) else argument
        dtype = tl.str_to_ty(mangle_type(argument), None)
        address = np.array([memory.pointer(tensor, name)], dtype=np.uint64)
        return tl.core.tensor(TensorHandle(address, dtype), dtype)

    return converted


def _runner(simulation: Simulation, run: Any) -> Any:
    def launched(self: Any, *arguments: Any, **keywords: Any) -> Compiled:
        run(self, *arguments, **keywords)
        return Compiled(simulation, self.fn.__name__)

    return launched


def _launcher(simulation: Simulation, builder: Builder) -> Any:
    def launch(self: Any, *arguments: Any, **keywords: Any) -> None:
        accepted = set(inspect.getfullargspec(self.fn).args)
        keywords = {name: value for name, value in keywords.items() if name in accepted}
        for hook in getattr(self, "pre_run_hooks", ()):
            hook(*arguments, **keywords)
        bound = inspect.getcallargs(self.fn, *arguments, **keywords)
        grid = _grid(self.grid, bound)
        started = Launch(self.fn.__name__, grid, int(np.prod(grid, dtype=np.int64)))
        simulation.launches.append(started)
        simulation.memory.begin_launch(started.kernel, min(started.programs, MOST_PROGRAMS))
        converted = {
            name: value if name in self.constexprs else _named(value, name)
            for name, value in bound.items()
        }
        builder.set_grid_dim(*grid)
        run = _run_sample if simulation.sampled else _run_all
        run(self.fn, converted, started, builder)

    return launch


def _named(value: Any, name: str) -> Any:
    """A tensor is known by its parameter's name, one inside a descriptor too."""
    base = getattr(value, "base", None)
    if hasattr(value, "data_ptr"):
        return original._implicit_cvt(value, name)
    if base is not None and hasattr(base, "data_ptr"):
        original._implicit_cvt(base, name)
    return original._implicit_cvt(value)


def _grid(grid: Any, bound: dict[str, Any]) -> tuple[int, int, int]:
    wanted = grid(bound) if callable(grid) else grid
    wanted = wanted if isinstance(wanted, tuple | list) else (wanted,)
    if not 1 <= len(wanted) <= 3:
        raise ValueError(f"a grid has one to three dimensions, not {len(wanted)}")
    sizes = [int(size) for size in wanted] + [1] * (3 - len(wanted))
    return sizes[0], sizes[1], sizes[2]


def _run_all(kernel: Any, arguments: dict[str, Any], launch: Launch, builder: Builder) -> None:
    for index in itertools.product(*map(range, launch.grid)):
        _run_program(kernel, arguments, launch, builder, index)


def _run_sample(kernel: Any, arguments: dict[str, Any], launch: Launch, builder: Builder) -> None:
    """All programs in order; an even sample of them where all would take too long."""
    started = time.perf_counter()
    pending = _sample(launch.grid, min(launch.programs, MOST_PROGRAMS))
    while pending:
        index = pending.pop(0)
        _run_program(kernel, arguments, launch, builder, index)
        elapsed = time.perf_counter() - started
        affordable = int(LAUNCH_BUDGET_S / max(elapsed, 1e-6) * launch.simulated)
        if elapsed > PROBE_S and affordable < launch.simulated + len(pending):
            pending = _thin(pending, max(0, affordable - launch.simulated))


def _run_program(
    kernel: Any,
    arguments: dict[str, Any],
    launch: Launch,
    builder: Builder,
    index: tuple[int, ...],
) -> None:
    builder.set_grid_idx(*index)
    builder.memory.begin_program(launch.simulated, index)
    kernel(**arguments)
    launch.simulated += 1


def _sample(grid: tuple[int, int, int], most: int) -> list[tuple[int, ...]]:
    total = int(np.prod(grid, dtype=np.int64))
    if total <= most:
        return list(itertools.product(*map(range, grid)))
    numbers = np.linspace(0, total - 1, most).astype(np.int64)
    return [tuple(int(i) for i in np.unravel_index(number, grid)) for number in numbers]


def _thin(pending: list[tuple[int, ...]], most: int) -> list[tuple[int, ...]]:
    """Evenly fewer, and the last one always: edges are where masks matter."""
    if most >= len(pending):
        return pending
    kept = np.unique(np.linspace(0, len(pending) - 1, max(most, 1)).astype(int))
    return [pending[place] for place in kept[:-1]] + pending[-1:]


def _call_device_function(self: Any, *arguments: Any, **keywords: Any) -> Any:
    return self.rewrite()(*arguments, **keywords)


def _refuse_compiled(self: Any, *arguments: Any, **keywords: Any) -> Any:
    raise Unsupported(f"{type(self).__name__} {getattr(self.fn, '__name__', '')}: not interpreted")


def _first_configuration(simulation: Simulation) -> Any:
    """Stands in for timing: the first configuration that is left after pruning wins."""

    def bench(self: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
        ahead = getattr(self, "_simulated", 0)
        self._simulated = ahead + 1
        if ahead == 0:
            simulation.tuned.append(f"{self.base_fn.__name__}: {config}")
        return [float(ahead + 1)] * 3

    return bench


class Rewriter(original.ASTTransformer):
    """`and`, `or` and `not` of tensors mean what the compiler makes of them."""

    def visit_Assign(self, node: ast.Assign) -> Any:
        node.value = self.visit(node.value)  # the original leaves it as it is
        return super().visit_Assign(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = AND if isinstance(node.op, ast.And) else OR
        result = node.values[0]
        for value in node.values[1:]:
            late = ast.Lambda(_NO_ARGUMENTS, value)
            result = ast.Call(ast.Name(name, ast.Load()), [result, late], [])
        return ast.copy_location(result, node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Not):
            return node
        return ast.copy_location(ast.Call(ast.Name(NOT, ast.Load()), [node.operand], []), node)


_NO_ARGUMENTS = ast.arguments([], [], None, [], [], None, [])


def both(first: Any, second: Any) -> Any:
    if not _is_value(first):
        return second() if first else first
    other = second()
    return first.logical_and(other) if _is_value(other) else (first if other else other)


def either(first: Any, second: Any) -> Any:
    if not _is_value(first):
        return first if first else second()
    other = second()
    return first.logical_or(other) if _is_value(other) else (other if other else first)


def opposite(value: Any) -> Any:
    return original.interpreter_semantic.not_(value) if _is_value(value) else not value


def _is_value(value: Any) -> bool:
    return isinstance(value, tl.core.tensor)


_LOGIC = {AND: both, OR: either, NOT: opposite}
