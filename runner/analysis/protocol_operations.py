"""What an operation does to buffers and barriers, told as events.

Owns the meaning of every operation but control flow. An operation that stands neither in OPERATIONS
nor among the harmless ones is not understood: nothing is skipped in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from runner.analysis.protocol_events import Buffer, Event, Kind, View
from runner.analysis.protocol_ir import VALUE, Op
from runner.analysis.protocol_values import ARITHMETIC, expression, num_programs, program_id
from runner.analysis.protocol_walk import NoSuchSlot, NotUnderstood, Walk

_MEMDESC = re.compile(r"!ttg\.memdesc<((?:\d+x)+)[a-zA-Z]+?(\d+)")
_NESTING = frozenset({"scf.for", "scf.if", "scf.while", "scf.yield", "scf.condition"})
_HARMLESS = re.compile(
    r"arith\..*|math\..*|ub\..*|gpu\.barrier|llvm\.intr\.assume"
    r"|tt\.(?:addptr|assert|atomic_\w+|bitcast|broadcast|cat|clampf|dot|dot_scaled|expand_dims"
    r"|extern_elementwise|fp_to_fp|gather|get_num_programs|get_program_id|histogram|int_to_ptr"
    r"|join|load|make_range|make_tensor_descriptor|map_elementwise|mulhiui|precise_\w+|print"
    r"|ptr_to_int|reduce|reduce\.return|reshape|scan|scan\.return|splat|split|store|trans|unsplat)"
    r"|ttg\.(?:barrier|convert_layout|fp4_to_fp|global_scratch_alloc|local_dealloc|warp_id)"
    r"|ttng\.(?:fence_mbarrier_init_release_cluster|reinterpret_tensor_descriptor|tensormap_\w+)"
)
_ASM_TOUCHES = re.compile(r"mbarrier|cp\.async|fence|bar\.|barrier|\bst\.|\bld\.|\bred\.|atom")


@cache
def harmless(op: Op) -> bool:
    """Whether the operation, and all inside it, does nothing that a protocol could notice."""
    if op.name == "tt.elementwise_inline_asm":
        own = not _ASM_TOUCHES.search(op.body)
    else:
        own = op.name in _NESTING or _HARMLESS.fullmatch(op.name) is not None
    return own and all(harmless(inner) for region in op.regions for inner in region.ops())


def perform(walk: Walk, op: Op) -> None:
    """Values and events of one operation. Raises NotUnderstood and Undecided."""
    if operation := OPERATIONS.get(op.name):
        operation(walk, op)
    elif op.name == "arith.constant":
        _constant(walk, op)
    elif op.name == "tt.get_program_id":
        walk.values[op.results[0]] = walk.chosen(program_id(op.body.strip()))
    elif op.name == "tt.get_num_programs":
        walk.values[op.results[0]] = walk.chosen(num_programs(op.body.strip()))
    elif harmless(op):
        _compute(walk, op)
    else:
        raise NotUnderstood(op.name, walk.source(op))


# Scalars


def _constant(walk: Walk, op: Op) -> None:
    text = op.body.strip()
    if text in ("true", "false"):
        walk.values[op.results[0]] = int(text == "true")
    elif re.fullmatch(r"-?\d+", text) and re.fullmatch(r"i\d+|index", op.types):
        walk.values[op.results[0]] = int(text)
    else:
        walk.values[op.results[0]] = walk.leaf(("constant", text, op.types), "")


def _compute(walk: Walk, op: Op) -> None:
    name = op.name
    if name == "arith.cmpi":
        name = f"arith.cmpi {op.body.split()[0].rstrip(',')}"
    if name not in ARITHMETIC or "tensor<" in op.types:
        walk.opaque(op)
        return
    operands = tuple(walk.value(operand) for operand in op.operands)
    if name == "arith.select" and any(isinstance(operand, View) for operand in operands):
        walk.values[op.results[0]] = operands[1 if walk.holds(op.operands[0], op) else 2]
        return
    scalars = tuple(walk.scalar(operand, op) for operand in op.operands)
    width = 1 if name.startswith("arith.cmpi") else _width(op)
    try:
        walk.values[op.results[0]] = walk.chosen(expression(name, scalars, width))
    except ZeroDivisionError:
        raise NotUnderstood("a division by zero", walk.source(op)) from None


@cache
def _width(op: Op) -> int:
    """Bits of the last integer type named, which is the result's."""
    found = re.findall(r"\bi(\d+)\b|\bindex\b", op.types)
    return int(found[-1] or 64) if found else 1


# Buffers and views of them


def _alloc(walk: Walk, op: Op) -> None:
    shape, bits = _memdesc(walk, op, op.types)
    if op not in walk.buffers:
        barriers = bits == 64 and len(shape) <= 2
        stages = shape[0] if len(shape) > (1 if barriers else 2) else 1
        walk.buffers[op] = Buffer(
            len(walk.buffers),
            walk.module.label(op.loc) or op.results[0][1:],
            walk.source(op),
            stages,
            shared=op.name == "ttg.local_alloc",
        )
    view = View(walk.buffers[op], 0, bits * math.prod(shape), shape, bits)
    walk.values[op.results[0]] = view
    if op.operands:
        walk.emit(Event(Kind.write, walk.source(op), writes=(view,)))


def _index(walk: Walk, op: Op) -> None:
    view = walk.view(op.operands[0], op)
    length, *rest = view.shape
    index = walk.known(op.operands[1], op, "slot", slots=length)
    if not 0 <= index < length:
        raise NoSuchSlot(view, index, walk.source(op))
    named = length > 1 or view.slot
    slot = f"{view.slot}[{index}]" if named else ""
    part = replace(view, shape=tuple(rest), slot=slot)
    if view.box is not None or not view.exact:
        part = replace(part, exact=False)
    else:
        size = view.bits * math.prod(rest)
        low = view.low + index * size
        part = replace(part, low=low, high=low + size)
    walk.values[op.results[0]] = part


def _subslice(walk: Walk, op: Op) -> None:
    view = walk.view(op.operands[0], op)
    shape, _ = _memdesc(walk, op, op.types.split("->")[-1])
    if op.name == "ttng.tmem_subslice":
        offsets = [0] * (len(view.shape) - 1) + [op.integer("N", op.integer("offset", 0))]
    else:
        offsets = [int(n) for n in re.findall(r"-?\d+", op.body.partition("[")[2])]
    if len(offsets) != len(view.shape):
        raise NotUnderstood(op.name, walk.source(op))
    if view.box is not None or not view.exact:
        walk.values[op.results[0]] = replace(view, shape=shape, exact=False)
        return
    box = tuple((o, o + n) for o, n in zip(offsets, shape, strict=True))
    slot = f"{view.slot}[{', '.join(f'{a}:{b}' for a, b in box)}]"
    walk.values[op.results[0]] = replace(view, shape=shape, box=box, slot=slot)


def _same_bits(walk: Walk, op: Op) -> None:
    """A transposed, reshaped or reinterpreted view covers what it covered."""
    view = walk.view(op.operands[0], op)
    shape, bits = _memdesc(walk, op, op.types.split("->")[-1])
    exact = view.exact and bits * math.prod(shape) == view.bits * math.prod(view.shape)
    walk.values[op.results[0]] = replace(view, shape=shape, bits=bits, exact=exact)


def _memdesc(walk: Walk, op: Op, types: str) -> tuple[tuple[int, ...], int]:
    """Shape and bits of an element of the last buffer type named."""
    found = _MEMDESC.findall(types)
    if not found:
        raise NotUnderstood(op.name, walk.source(op))
    shape, bits = found[-1]
    return tuple(int(n) for n in shape.rstrip("x").split("x")), int(bits)


# Ordinary reads and writes


def _read(walk: Walk, op: Op) -> None:
    view = walk.view(op.operands[0], op)
    walk.emit(Event(Kind.read, walk.source(op), reads=(view,)))
    walk.opaque(op, fresh=True)


def _write(walk: Walk, op: Op) -> None:
    position = 0 if op.name == "ttg.local_scatter" else 1
    view = walk.view(op.operands[position], op)
    if op.name == "ttng.tmem_store" and not walk.holds(op.operands[-1], op):
        return
    walk.emit(Event(Kind.write, walk.source(op), writes=(view,)))


# Barriers


def _barrier(walk: Walk, op: Op, kind: Kind, amount: int = 0, parity: int = 0) -> None:
    barrier = walk.barrier(op.operands[0], op)
    walk.emit(Event(kind, walk.source(op), barrier, amount=amount, parity=parity))


def _init(walk: Walk, op: Op) -> None:
    _barrier(walk, op, Kind.init, _number(walk, op))


def _inval(walk: Walk, op: Op) -> None:
    _barrier(walk, op, Kind.inval)


def _expect(walk: Walk, op: Op) -> None:
    if walk.holds(op.operands[1], op):
        _barrier(walk, op, Kind.expect, _number(walk, op))


def _arrive(walk: Walk, op: Op) -> None:
    if walk.holds(op.operands[1] if len(op.operands) > 1 else None, op):
        _barrier(walk, op, Kind.arrive, _number(walk, op))


def _wait(walk: Walk, op: Op) -> None:
    operands = VALUE.findall(op.body.split(" deps ")[0])
    if walk.holds(operands[2] if len(operands) > 2 else None, op):
        _barrier(walk, op, Kind.wait, parity=walk.known(operands[1], op, "phase") & 1)


def _number(walk: Walk, op: Op) -> int:
    """The literal between the commas: a count or a size."""
    found = re.search(r", (\d+)\b", op.body)
    if not found:
        raise NotUnderstood(f"{op.name} without a number", walk.source(op))
    return int(found[1])


# Copies by TMA


def _tma_load(walk: Walk, op: Op) -> None:
    if "multicast" in op.body:
        raise NotUnderstood(f"{op.name} with multicast", walk.source(op))
    named = VALUE.findall(op.body.rpartition("]")[2])
    if len(named) != 3:
        raise NotUnderstood(op.name, walk.source(op))
    result, barrier, predicate = named
    if not walk.holds(predicate, op):
        return
    view, signalled = walk.view(result, op), walk.barrier(barrier, op)
    source, size = walk.source(op), view.size_bytes
    walk.emit(Event(Kind.tma_load, source, signalled, writes=(view,), amount=size))


def _tma_store(walk: Walk, op: Op) -> None:
    view = walk.view(op.operands[-1], op)
    walk.emit(Event(Kind.tma_store, walk.source(op), reads=(view,)))


def _store_wait(walk: Walk, op: Op) -> None:
    walk.emit(Event(Kind.store_wait, walk.source(op), amount=op.integer("pendings")))


def _fence(walk: Walk, op: Op) -> None:
    walk.emit(Event(Kind.fence, walk.source(op)))


# Copies by cp.async


def _cp_async(walk: Walk, op: Op) -> None:
    view = walk.view(op.operands[1], op)
    walk.emit(Event(Kind.cp_async, walk.source(op), writes=(view,)))
    walk.opaque(op)


def _cp_commit(walk: Walk, op: Op) -> None:
    walk.emit(Event(Kind.cp_commit, walk.source(op)))
    walk.opaque(op)


def _cp_wait(walk: Walk, op: Op) -> None:
    walk.emit(Event(Kind.cp_wait, walk.source(op), amount=op.integer("num")))
    walk.opaque(op)


def _cp_arrive(walk: Walk, op: Op) -> None:
    """Every thread arrives; without `noIncrement` each raises the count by one beforehand."""
    warps = walk.program.processes[walk.process].warps or walk.module.num_warps
    barrier = walk.barrier(op.operands[0], op)
    counted = op.has_flag("noIncrement")
    source = walk.source(op)
    walk.emit(Event(Kind.cp_arrive, source, barrier, amount=32 * warps, counted=counted))


# Matrix products


def _wgmma(walk: Walk, op: Op) -> None:
    operands = [walk.value(name) for name in op.operands[:2]]
    reads = tuple(operand for operand in operands if isinstance(operand, View))
    walk.emit(Event(Kind.mma, walk.source(op), reads=reads))
    if not op.integer("isAsync", 0):
        walk.emit(Event(Kind.mma_wait, walk.source(op)))
    walk.opaque(op)


def _wgmma_wait(walk: Walk, op: Op) -> None:
    walk.emit(Event(Kind.mma_wait, walk.source(op), amount=op.integer("pendings")))
    for result, operand in zip(op.results, op.operands, strict=True):
        walk.values[result] = walk.value(operand)


def _tcgen05(walk: Walk, op: Op) -> None:
    """Always asynchronous: lowering adds no wait, whether or not barriers are named."""
    if op.has_flag("two_ctas") or op.has_flag("multicast"):
        raise NotUnderstood(f"{op.name} of two blocks", walk.source(op))
    main = re.sub(r", %[\w$.-]+(?:#\d+)?\[%[^\]]*\]", "", op.body)  # barriers and predicates
    operands = VALUE.findall(re.sub(r"\[[^\]]*\]", "", main))
    views = [walk.view(name, op) for name in operands[:-2]]
    if not walk.holds(operands[-1], op):
        return
    reads = (*views[:2], *views[3:])
    walk.emit(Event(Kind.tc_mma, walk.source(op), reads=reads, writes=(views[2],)))
    for barrier, predicate in re.findall(r", (%[\w$.-]+(?:#\d+)?)\[(%[^\]]*)\]", op.body):
        if walk.holds(predicate, op):
            walk.emit(Event(Kind.tc_commit, walk.source(op), walk.barrier(barrier, op)))


def _tmem_copy(walk: Walk, op: Op) -> None:
    source, target = (walk.view(name, op) for name in op.operands[:2])
    walk.emit(Event(Kind.tc_mma, walk.source(op), reads=(source,), writes=(target,)))


def _tc_commit(walk: Walk, op: Op) -> None:
    operands = VALUE.findall(op.body.split(" descs ")[0])
    if walk.holds(operands[1] if len(operands) > 1 else None, op):
        _barrier(walk, op, Kind.tc_commit)


OPERATIONS: dict[str, Callable[[Walk, Op], None]] = {
    "ttg.local_alloc": _alloc,
    "ttng.tmem_alloc": _alloc,
    "ttg.memdesc_index": _index,
    "ttg.memdesc_subslice": _subslice,
    "ttng.tmem_subslice": _subslice,
    "ttg.memdesc_trans": _same_bits,
    "ttg.memdesc_reshape": _same_bits,
    "ttg.memdesc_reinterpret": _same_bits,
    "ttg.local_load": _read,
    "ttg.local_gather": _read,
    "ttng.tmem_load": _read,
    "ttg.local_store": _write,
    "ttg.local_scatter": _write,
    "ttng.tmem_store": _write,
    "ttng.init_barrier": _init,
    "ttng.inval_barrier": _inval,
    "ttng.barrier_expect": _expect,
    "ttng.arrive_barrier": _arrive,
    "ttng.wait_barrier": _wait,
    "ttng.async_tma_copy_global_to_local": _tma_load,
    "ttng.async_tma_gather": _tma_load,
    "ttng.async_tma_copy_local_to_global": _tma_store,
    "ttng.async_tma_reduce": _tma_store,
    "ttng.async_tma_scatter": _tma_store,
    "ttng.async_tma_store_wait": _store_wait,
    "ttng.fence_async_shared": _fence,
    "ttg.async_copy_global_to_local": _cp_async,
    "ttg.async_commit_group": _cp_commit,
    "ttg.async_wait": _cp_wait,
    "ttng.async_copy_mbarrier_arrive": _cp_arrive,
    "ttng.warp_group_dot": _wgmma,
    "ttng.warp_group_dot_wait": _wgmma_wait,
    "ttng.tc_gen5_mma": _tcgen05,
    "ttng.tc_gen5_mma_scaled": _tcgen05,
    "ttng.tmem_copy": _tmem_copy,
    "ttng.tc_gen5_commit": _tc_commit,
}
