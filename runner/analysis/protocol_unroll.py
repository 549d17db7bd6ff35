"""Unrolls a kernel into what each partition does, for one choice of its unknown values.

Owns control flow: blocks, loops, branches, calls, partitions. A partition's path never depends on
the timing of another one, so in one world each partition is a plain list of events, and only their
interleaving is left open.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from runner.analysis.protocol_events import Event, Kind, Process, Program, View
from runner.analysis.protocol_ir import VALUE, Block, Function, Module, Op, Region
from runner.analysis.protocol_operations import harmless, perform
from runner.analysis.protocol_values import Domain, Unknown, World, expression
from runner.analysis.protocol_walk import Budget, NotUnderstood, Undecided, Value, Walk

MAX_DEPTH = 50  # of calls
_LOOPS = frozenset({"scf.for", "scf.while"})
_RETURNS = frozenset({"tt.return", "ttg.warp_return"})
_HANDS_OUT = frozenset({"scf.yield", "scf.condition", "ttg.warp_yield"})


def unroll(module: Module, world: World, budget: Budget) -> Program:
    """All partitions of the kernel in that world. Raises NotUnderstood and Undecided."""
    if module.num_ctas > 1:
        raise NotUnderstood(f"clusters: {module.num_ctas} blocks share their barriers")
    walk = Walk(module, world, budget)
    for parameter in module.kernel.parameters:
        size = re.fullmatch(r"i\d+", parameter.type) is not None
        walk.values[parameter.name] = walk.leaf(
            ("parameter", parameter.name),
            parameter.name[1:],
            Domain.positive if size else Domain.natural,
            parameter.divisibility if size else 1,
        )
    _function(walk, module.kernel.body)
    return walk.program


def _do(walk: Walk, op: Op) -> None:
    walk.count_step(op)
    if construct := _CONSTRUCTS.get(op.name):
        construct(walk, op)
    else:
        perform(walk, op)


def _function(walk: Walk, body: Region) -> list[Value]:
    """Walks from block to block; the values returned."""
    blocks = {block.label: block for block in body.blocks}
    block = body.blocks[0]
    while True:
        *ops, last = block.ops
        for op in ops:
            _do(walk, op)
        walk.count_step(last)
        if last.name in _RETURNS:
            return [walk.value(name) for name in last.operands]
        block = _jump(walk, last, blocks)


def _jump(walk: Walk, op: Op, blocks: dict[str, Block]) -> Block:
    targets = re.findall(r"\^(bb\d+)(?:\(([^)]*)\))?", op.body)
    if op.name == "cf.cond_br":
        label, passed = targets[0 if walk.holds(op.operands[0], op) else 1]
    elif op.name == "cf.br":
        label, passed = targets[0]
    else:
        raise NotUnderstood(op.name, walk.source(op))
    block = blocks[label]
    _bind(walk, block.arguments, [walk.value(name) for name in VALUE.findall(passed)])
    return block


def _bind(walk: Walk, names: list[str] | tuple[str, ...], values: list[Value]) -> None:
    if len(names) != len(values):
        raise NotUnderstood(f"{len(values)} values for {', '.join(names) or 'no name'}")
    walk.values.update(zip(names, values, strict=True))


def _region(walk: Walk, region: Region) -> list[Value]:
    """Walks a region of one block; the values that its last operation hands out."""
    if len(region.blocks) != 1:
        raise NotUnderstood("a region of several blocks")
    handed: list[Value] = []
    for op in region.blocks[0].ops:
        if op.name in _HANDS_OUT:
            handed = [walk.value(name) for name in op.operands]
        else:
            _do(walk, op)
    return handed


def _for(walk: Walk, op: Op) -> None:
    lower, upper, step = (walk.scalar(name, op) for name in op.operands[1:4])
    carried = [walk.value(name) for name in op.operands[5::2]]
    trips = walk.chosen(expression("trips", (lower, upper, step), 64))
    if isinstance(trips, Unknown):
        if not harmless(op):
            raise Undecided("trips", trips, walk.source(op), _nests(op))
        walk.opaque(op)
        return
    if not harmless(op):
        _note_trips(walk, op, trips)
    names = op.regions[0].blocks[0].arguments
    for _ in range(trips):
        walk.count_step(op)
        _bind(walk, names, [lower, *carried])
        carried = _region(walk, op.regions[0])
        lower = expression("arith.addi", (lower, step), 64)
    _bind(walk, op.results, carried)


def _nests(op: Op) -> bool:
    inner = (other for region in op.regions for other in region.ops())
    return any(other.name in _LOOPS and not harmless(other) for other in inner)


def _note_trips(walk: Walk, op: Op, trips: int) -> None:
    source = walk.source(op)
    place = f"line {source.line}" if source else "an unknown line"
    walk.program.trips.setdefault(place, set()).add(trips)


def _while(walk: Walk, op: Op) -> None:
    before, after = op.regions
    carried = [walk.value(name) for name in re.findall(r"= (%[\w$.-]+(?:#\d+)?)", op.body)]
    trip = 0
    while True:
        _bind(walk, before.blocks[0].arguments, carried)
        goes_on, *carried = _region(walk, before)
        if isinstance(goes_on, Unknown):
            raise Undecided("branch", goes_on, walk.source(op), trip=trip)
        if not goes_on:
            break
        _bind(walk, after.blocks[0].arguments, carried)
        carried = _region(walk, after)
        walk.count_step(op)
        trip += 1
    if not harmless(op):
        _note_trips(walk, op, trip)
    _bind(walk, op.results, carried)


def _if(walk: Walk, op: Op) -> None:
    condition = walk.scalar(op.operands[0], op)
    if isinstance(condition, Unknown):
        if not harmless(op):
            raise Undecided("branch", condition, walk.source(op))
        _select(walk, op, condition)
        return
    taken = 0 if condition else 1
    values = _region(walk, op.regions[taken]) if taken < len(op.regions) else []
    _bind(walk, op.results, values)


def _select(walk: Walk, op: Op, condition: Unknown) -> None:
    """Both branches of a condition that only computes."""
    branches = [_region(walk, region) for region in op.regions]
    if len(branches) < 2:
        return
    for name, yes, no in zip(op.results, *branches, strict=True):
        if isinstance(yes, View) or isinstance(no, View):
            raise Undecided("branch", condition, walk.source(op))
        walk.values[name] = walk.chosen(expression("arith.select", (condition, yes, no), 64))


def _specialize(walk: Walk, op: Op) -> None:
    """Worker partitions run beside the default one, which waits for them at the end."""
    passed = [walk.value(name) for name in op.operands]
    default, *workers = op.regions
    outer, values = walk.process, walk.values
    children = []
    for worker in workers:
        walk.program.processes.append(Process(worker.label, worker.warps))
        walk.process = len(walk.program.processes) - 1
        children.append(walk.process)
        walk.values = {}
        _bind(walk, worker.blocks[0].arguments, passed)
        _function(walk, worker)
    walk.process, walk.values = outer, values
    walk.emit(Event(Kind.fork, walk.source(op), children=tuple(children)))
    _bind(walk, op.results, _region(walk, default))
    walk.emit(Event(Kind.rejoin, walk.source(op), children=tuple(children)))


def _call(walk: Walk, op: Op) -> None:
    found = re.search(r"@([\w$.]+)", op.body)
    function: Function | None = walk.module.functions.get(found[1]) if found else None
    if function is None or walk.depth >= MAX_DEPTH:
        raise NotUnderstood("a call that cannot be followed", walk.source(op))
    passed = [walk.value(name) for name in op.operands]
    outer, walk.values = walk.values, {}
    walk.depth += 1
    _bind(walk, [parameter.name for parameter in function.parameters], passed)
    results = _function(walk, function.body)
    walk.depth -= 1
    walk.values = outer
    _bind(walk, op.results, results)


_CONSTRUCTS: dict[str, Callable[[Walk, Op], None]] = {
    "scf.for": _for,
    "scf.while": _while,
    "scf.if": _if,
    "ttg.warp_specialize": _specialize,
    "tt.call": _call,
}
