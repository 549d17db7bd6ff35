"""Unrolls a kernel's TTGIR into what each partition does, for one choice of its unknown values.

Owns the meaning of operations. A partition's path never depends on the timing of another one, so
in one world each partition is a plain list of events, and only their interleaving is left open.
Whatever operation is not understood raises NotUnderstood: nothing is skipped in silence.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache

from runner.analysis.findings import Source
from runner.analysis.protocol_events import (
    Barrier,
    Buffer,
    Event,
    Kind,
    Process,
    Program,
    View,
)
from runner.analysis.protocol_ir import Block, Function, Module, Op, Region
from runner.analysis.protocol_values import (
    ARITHMETIC,
    Domain,
    Unknown,
    World,
    expression,
    leaf,
)

Value = int | Unknown | View
MAX_EVENTS = 20_000  # of one partition; a kernel that needs more is not searched
MAX_STEPS = 400_000  # operations walked in one world
_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_MEMDESC = re.compile(r"!ttg\.memdesc<((?:\d+x)+)[a-zA-Z]+?(\d+)")
_PURE = ("arith.", "math.", "ub.")
_PURE_OPS = frozenset(
    """
    gpu.barrier llvm.intr.assume
    tt.addptr tt.assert tt.atomic_cas tt.atomic_rmw tt.bitcast tt.broadcast tt.cat tt.clampf tt.dot
    tt.dot_scaled tt.expand_dims tt.extern_elementwise tt.fp_to_fp tt.gather tt.get_num_programs
    tt.get_program_id tt.histogram tt.int_to_ptr tt.join tt.load tt.make_range
    tt.make_tensor_descriptor tt.map_elementwise tt.mulhiui tt.precise_divf tt.precise_sqrt
    tt.print tt.ptr_to_int tt.reduce tt.reshape tt.scan tt.splat tt.split tt.store tt.trans
    tt.unsplat
    ttg.barrier ttg.convert_layout ttg.fp4_to_fp ttg.global_scratch_alloc ttg.local_dealloc
    ttg.warp_id
    ttng.reinterpret_tensor_descriptor ttng.tensormap_create ttng.tensormap_fenceproxy_acquire
    """.split()
)  # nothing that a barrier protocol could notice
_FRESH = frozenset({"tt.atomic_cas", "tt.atomic_rmw"})  # another value each time
_ASM_TOUCHES = re.compile(r"mbarrier|cp\.async|fence|bar\.|barrier|\bst\.|\bld\.|\bred\.|atom")


class NotUnderstood(Exception):
    """An operation or a value that the model has no words for; with its name and line."""

    def __init__(self, what: str, source: Source | None = None) -> None:
        super().__init__(what)
        self.what, self.source = what, source


class Undecided(Exception):
    """The path depends on an unknown. `purpose` is trips, branch, index or phase."""

    def __init__(self, purpose: str, value: Unknown, source: Source | None) -> None:
        super().__init__(purpose)
        self.purpose, self.value, self.source = purpose, value, source


def unroll(module: Module, world: World) -> Program:
    """All partitions of the kernel in that world. Raises NotUnderstood and Undecided."""
    return _Unroller(module, world).run()


@cache
def _touches(op: Op) -> bool:
    """Whether an operation inside matters to the protocol, so that its path must be known."""
    return any(not _harmless(inner) for region in op.regions for inner in region.ops())


def _harmless(op: Op) -> bool:
    if op.name in ("scf.for", "scf.if", "scf.yield", "scf.while", "scf.condition"):
        return True
    if op.name == "tt.elementwise_inline_asm":
        return not _ASM_TOUCHES.search(op.body)
    if op.name.startswith("tt.reduce.") or op.name.startswith("tt.scan."):
        return True
    return op.name.startswith(_PURE) or op.name in _PURE_OPS


@cache
def _signature(op: Op) -> tuple[str, ...]:
    return (op.name, _VALUE.sub("%", op.body), op.types)


@cache
def _width(op: Op) -> int:
    """Bits of the last integer type named: the result's."""
    found = re.findall(r"\bi(\d+)\b|\bindex\b", op.types)
    return int(found[-1] or 64) if found else 1


class _Unroller:
    def __init__(self, module: Module, world: World) -> None:
        self.module, self.world = module, world
        self.program = Program([Process("default")], {})
        self.process = 0
        self.values: dict[str, Value] = {}
        self.buffers: dict[Op, Buffer] = {}
        self.steps = 0
        self.depth = 0

    def run(self) -> Program:
        if self.module.num_ctas > 1:
            raise NotUnderstood(f"clusters ({self.module.num_ctas} blocks share their barriers)")
        kernel = self.module.kernel
        for parameter in kernel.parameters:
            size = re.fullmatch(r"i\d+", parameter.type) is not None
            identity = ("parameter", parameter.name)
            domain = Domain.positive if size else Domain.natural
            self.values[parameter.name] = self._leaf(
                identity, parameter.name[1:], domain, parameter.divisibility if size else 1
            )
        self._function(kernel)
        return self.program

    # Values

    def _leaf(
        self,
        identity: tuple[object, ...],
        label: str,
        domain: Domain = Domain.natural,
        divisibility: int = 1,
    ) -> int | Unknown:
        unknown = leaf(identity, label, domain, divisibility)
        return self.world.known.get(unknown.key, unknown)

    def _assumed(self, value: int | Unknown) -> int | Unknown:
        return self.world.known.get(value.key, value) if isinstance(value, Unknown) else value

    def _value(self, name: str) -> Value:
        try:
            return self.values[name]
        except KeyError:
            raise NotUnderstood(f"the value {name}") from None

    def _scalar(self, name: str, op: Op) -> int | Unknown:
        value = self._value(name)
        if isinstance(value, View):
            raise NotUnderstood(f"{op.name} on a buffer", self._source(op))
        return value

    def _known(self, name: str, op: Op, purpose: str) -> int:
        value = self._scalar(name, op)
        if isinstance(value, Unknown):
            raise Undecided(purpose, value, self._source(op))
        return value

    def _view(self, name: str, op: Op) -> View:
        value = self._value(name)
        if not isinstance(value, View):
            raise NotUnderstood(f"{op.name} on a buffer of unknown origin", self._source(op))
        return value

    def _barrier(self, name: str, op: Op) -> Barrier:
        view = self._view(name, op)
        if view.high - view.low != 64:
            raise NotUnderstood(f"{op.name} on several barriers at once", self._source(op))
        return Barrier(view.buffer, view.low // 64)

    def _source(self, op: Op) -> Source | None:
        return self.module.source(op.loc)

    def _holds(self, name: str | None, op: Op) -> bool:
        """Whether a predicate lets the operation happen."""
        return name is None or self._known(name, op, "branch") != 0

    # Control flow

    def _function(self, function: Function) -> list[Value]:
        blocks = {block.label: block for block in function.body.blocks}
        block: Block | None = function.body.blocks[0]
        while block is not None:
            *ops, last = block.ops
            for op in ops:
                self._do(op)
            self._count_step(last)
            if last.name in ("tt.return", "ttg.warp_return"):
                return [self._value(name) for name in last.operands]
            block = self._jump(last, blocks)
        return []

    def _jump(self, op: Op, blocks: dict[str, Block]) -> Block:
        targets = re.findall(r"\^(bb\d+)(?:\(([^)]*)\))?", op.body)
        if op.name == "cf.cond_br":
            chosen = targets[0 if self._known(op.operands[0], op, "branch") else 1]
        elif op.name == "cf.br":
            chosen = targets[0]
        else:
            raise NotUnderstood(op.name, self._source(op))
        block = blocks[chosen[0]]
        passed = [self._value(name) for name in _VALUE.findall(chosen[1])]
        self.values.update(zip(block.arguments, passed, strict=True))
        return block

    def _region(self, region: Region) -> list[Value]:
        """Walks a region of one block; the values that its last operation hands out."""
        if len(region.blocks) != 1:
            raise NotUnderstood("a region of several blocks")
        *ops, last = region.blocks[0].ops or [Op("scf.yield", (), "", "", ())]
        for op in ops:
            self._do(op)
        if last.name not in ("scf.yield", "scf.condition", "ttg.warp_yield", "ttg.warp_return"):
            self._do(last)
            return []
        return [self._value(name) for name in last.operands]

    def _for(self, op: Op) -> None:
        lower, upper, step = op.operands[1:4]
        argument_names = op.regions[0].blocks[0].arguments
        carried: list[Value] = [self._value(name) for name in op.operands[5::2]]
        bounds = (self._scalar(lower, op), self._scalar(upper, op), self._scalar(step, op))
        trips = self._assumed(expression("trips", bounds, 64))
        if isinstance(trips, Unknown):
            if _touches(op):
                raise Undecided("trips", trips, self._source(op))
            self._opaque(op)
            return
        if _touches(op):
            self._note_trips(op, trips)
        current, stride = bounds[0], bounds[2]
        for _ in range(trips):
            self.values.update(zip(argument_names, [current, *carried], strict=True))
            carried = self._region(op.regions[0])
            current = expression("arith.addi", (current, stride), 64)
        self.values.update(zip(op.results, carried, strict=True))

    def _note_trips(self, op: Op, trips: int) -> None:
        source = self._source(op)
        place = f"line {source.line}" if source else op.loc
        self.program.trips.setdefault(place, set()).add(trips)

    def _while(self, op: Op) -> None:
        before, after = op.regions
        names = before.blocks[0].arguments or op.regions[0].blocks[0].arguments
        carried = [self._value(name) for name in re.findall(r"= (%[\w$.-]+(?:#\d+)?)", op.body)]
        while True:
            self.values.update(zip(names, carried, strict=True))
            goes_on, *carried = self._region(before)
            if isinstance(goes_on, Unknown):
                raise Undecided("branch", goes_on, self._source(op))
            if not goes_on:
                break
            self.values.update(zip(after.blocks[0].arguments, carried, strict=True))
            carried = self._region(after)
        self.values.update(zip(op.results, carried, strict=True))

    def _if(self, op: Op) -> None:
        condition = self._scalar(op.operands[0], op)
        if isinstance(condition, Unknown):
            if _touches(op):
                raise Undecided("branch", condition, self._source(op))
            self._select(op, condition)
            return
        taken = 0 if condition else 1
        values = self._region(op.regions[taken]) if taken < len(op.regions) else []
        self.values.update(zip(op.results, values, strict=True))

    def _select(self, op: Op, condition: Unknown) -> None:
        """Both branches of a condition that only computes."""
        branches = [self._region(region) for region in op.regions]
        if len(branches) < 2:
            return
        for name, yes, no in zip(op.results, *branches, strict=True):
            if isinstance(yes, View) or isinstance(no, View):
                raise Undecided("branch", condition, self._source(op))
            self.values[name] = expression("arith.select", (condition, yes, no), 64)

    def _specialize(self, op: Op) -> None:
        """Worker partitions run beside the default one, which waits for them at the end."""
        passed = [self._value(name) for name in op.operands]
        default, workers = op.regions[0], op.regions[1:]
        outer, values = self.process, self.values
        children = []
        for worker in workers:
            self.program.processes.append(Process(worker.label))
            self.process = len(self.program.processes) - 1
            children.append(self.process)
            block = worker.blocks[0]
            self.values = dict(zip(block.arguments, passed, strict=True))
            self._function(Function(worker.label, False, [], worker))
        self.process, self.values = outer, values
        self._emit(Event(Kind.fork, self._source(op), children=tuple(children)))
        results = self._region(default)
        self.values.update(zip(op.results, results, strict=False))
        self._emit(Event(Kind.rejoin, self._source(op), children=tuple(children)))

    def _call(self, op: Op) -> None:
        found = re.search(r"@([\w$.]+)", op.body)
        function = self.module.functions.get(found[1]) if found else None
        if function is None or self.depth > 50:
            raise NotUnderstood("a call that cannot be followed", self._source(op))
        passed = [self._value(name) for name in op.operands]
        outer = self.values
        self.values = dict(zip((p.name for p in function.parameters), passed, strict=True))
        self.depth += 1
        results = self._function(function)
        self.depth -= 1
        self.values = outer
        self.values.update(zip(op.results, results, strict=True))

    # Operations

    def _count_step(self, op: Op) -> None:
        self.steps += 1
        if self.steps > MAX_STEPS:
            raise NotUnderstood(f"a kernel of more than {MAX_STEPS} steps", self._source(op))

    def _do(self, op: Op) -> None:
        self._count_step(op)
        if handler := _HANDLERS.get(op.name):
            handler(self, op)
        elif op.name == "arith.constant":
            self.values[op.results[0]] = self._constant(op)
        elif _harmless(op) and not _touches(op):
            self._compute(op)
        else:
            raise NotUnderstood(op.name, self._source(op))

    def _constant(self, op: Op) -> int | Unknown:
        text = op.body.strip()
        if text in ("true", "false"):
            return int(text == "true")
        if re.fullmatch(r"-?\d+", text) and re.fullmatch(r"i\d+|index", op.types):
            return int(text)
        return self._leaf(("constant", text, op.types), "a constant")

    def _compute(self, op: Op) -> None:
        name = op.name
        if name == "arith.cmpi":
            name = f"arith.cmpi {op.body.split()[0].rstrip(',')}"
        if name not in ARITHMETIC or "tensor<" in op.types:
            self._opaque(op)
            return
        operands = tuple(self._value(operand) for operand in op.operands)
        if name == "arith.select" and any(isinstance(operand, View) for operand in operands):
            chosen = 1 if self._known(op.operands[0], op, "branch") else 2
            self.values[op.results[0]] = operands[chosen]
            return
        scalars = tuple(self._scalar(operand, op) for operand in op.operands)
        width = 1 if name.startswith("arith.cmpi") else _width(op)
        try:
            self.values[op.results[0]] = self._assumed(expression(name, scalars, width))
        except ZeroDivisionError:
            raise NotUnderstood("a division by zero", self._source(op)) from None

    def _opaque(self, op: Op) -> None:
        """A value that is not followed: equal operations on equal operands are one unknown."""
        operands = tuple(self._value(name) for name in op.operands if name in self.values)
        keys = tuple(o.key if isinstance(o, Unknown) else o for o in operands)
        fresh = (self.process, self.steps) if op.name in _FRESH else ()
        domain = Domain.flag if re.search(r"(^|-> )i1$", op.types) else Domain.natural
        if op.name == "tt.get_num_programs":
            domain = Domain.positive
        label = self._label(op)
        for number, result in enumerate(op.results):
            identity = (*_signature(op), keys, number, fresh)
            self.values[result] = self._leaf(identity, label, domain)

    def _label(self, op: Op) -> str:
        if op.name in ("tt.get_program_id", "tt.get_num_programs"):
            return f"{op.name[7:]}({op.body.strip()})"
        source = self._source(op)
        where = f" of line {source.line}" if source else ""
        return f"{self.module.label(op.loc) or op.name}{where}"

    def _emit(self, event: Event) -> None:
        process = self.program.processes[self.process]
        if len(process.events) >= MAX_EVENTS:
            raise NotUnderstood(f"a partition of more than {MAX_EVENTS} events", event.source)
        process.add(event, self.process)

    # Buffers

    def _alloc(self, op: Op) -> None:
        found = _memdesc(op.types)
        if found is None:
            raise NotUnderstood(op.name, self._source(op))
        shape, bits = found
        if op not in self.buffers:
            name = self.module.label(op.loc) or op.results[0][1:]
            stages = shape[0] if len(shape) > 1 + (bits != 64) else 1
            self.buffers[op] = Buffer(len(self.buffers), name, self._source(op), stages)
        size = bits * math.prod(shape)
        view = View(self.buffers[op], 0, size, shape, bits)
        self.values[op.results[0]] = view
        for token in op.results[1:]:
            self.values[token] = self._leaf(("token",), "token")
        if op.operands:
            self._emit(Event(Kind.write, self._source(op), writes=(view,)))

    def _index(self, op: Op) -> None:
        view = self._view(op.operands[0], op)
        index = self._known(op.operands[1], op, "index")
        length, *rest = view.shape
        if not 0 <= index < length:
            raise NotUnderstood(
                f"slot {index} of {view.name}, which has {length}", self._source(op)
            )
        slot = view.slot + (f"[{index}]" if length > 1 or view.slot else "")
        if view.box is not None or not view.exact:
            self.values[op.results[0]] = replace(view, shape=tuple(rest), exact=False, slot=slot)
            return
        size = view.bits * math.prod(rest)
        low = view.low + index * size
        self.values[op.results[0]] = replace(
            view, low=low, high=low + size, shape=tuple(rest), slot=slot
        )

    def _subslice(self, op: Op) -> None:
        view = self._view(op.operands[0], op)
        found = _memdesc(op.types.split("->")[-1])
        offsets = [int(n) for n in re.findall(r"-?\d+", op.body.partition("[")[2])]
        if op.name == "ttng.tmem_subslice":
            offsets = [0] * (len(view.shape) - 1) + [op.integer("N", op.integer("offset", 0))]
        if found is None or len(offsets) != len(view.shape):
            raise NotUnderstood(op.name, self._source(op))
        shape = found[0]
        if view.box is not None or not view.exact:
            self.values[op.results[0]] = replace(view, shape=shape, exact=False)
            return
        box = tuple((o, o + n) for o, n in zip(offsets, shape, strict=True))
        slot = f"{view.slot}[{', '.join(f'{a}:{b}' for a, b in box)}]"
        self.values[op.results[0]] = replace(view, shape=shape, box=box, slot=slot)

    def _same_bits(self, op: Op) -> None:
        """A transposed, reshaped or reinterpreted view covers what it covered."""
        view = self._view(op.operands[0], op)
        found = _memdesc(op.types.split("->")[-1])
        if found is None:
            raise NotUnderstood(op.name, self._source(op))
        shape, bits = found
        exact = view.exact and bits * math.prod(shape) == view.bits * math.prod(view.shape)
        self.values[op.results[0]] = replace(view, shape=shape, bits=bits, exact=exact)

    def _read(self, op: Op) -> None:
        view = self._view(op.operands[0], op)
        self._emit(Event(Kind.read, self._source(op), reads=(view,)))
        for result in op.results:
            identity = ("read", self.process, self.steps, result)
            self.values[result] = self._leaf(identity, self._label(op))

    def _write(self, op: Op) -> None:
        position = 0 if op.name == "ttg.local_scatter" else 1
        view = self._view(op.operands[position], op)
        if op.name == "ttng.tmem_store" and not self._holds(op.operands[-1], op):
            return
        self._emit(Event(Kind.write, self._source(op), writes=(view,)))
        for result in op.results:
            self.values[result] = self._leaf(("token",), "token")

    # Barriers

    def _init(self, op: Op) -> None:
        self._emit_barrier(Kind.init, op, amount=_number(op))

    def _inval(self, op: Op) -> None:
        self._emit_barrier(Kind.inval, op)

    def _expect(self, op: Op) -> None:
        if self._holds(op.operands[1], op):
            self._emit_barrier(Kind.expect, op, amount=_number(op))

    def _arrive(self, op: Op) -> None:
        if self._holds(op.operands[1] if len(op.operands) > 1 else None, op):
            self._emit_barrier(Kind.arrive, op, amount=_number(op))

    def _wait(self, op: Op) -> None:
        operands = _VALUE.findall(op.body.split(" deps ")[0])
        if self._holds(operands[2] if len(operands) > 2 else None, op):
            parity = self._known(operands[1], op, "phase") & 1
            self._emit_barrier(Kind.wait, op, parity=parity)

    def _emit_barrier(self, kind: Kind, op: Op, amount: int = 0, parity: int = 0) -> None:
        barrier = self._barrier(op.operands[0], op)
        self._emit(Event(kind, self._source(op), barrier, amount=amount, parity=parity))

    # Copies and matrix products

    def _tma_load(self, op: Op) -> None:
        if "multicast" in op.body:
            raise NotUnderstood(f"{op.name} with multicast", self._source(op))
        result, barrier, predicate = _VALUE.findall(op.body[op.body.rindex("]") :])
        if not self._holds(predicate, op):
            return
        view = self._view(result, op)
        self._emit(
            Event(
                Kind.tma_load,
                self._source(op),
                self._barrier(barrier, op),
                writes=(view,),
                amount=view.size_bytes,
            )
        )

    def _tma_store(self, op: Op) -> None:
        view = self._view(op.operands[-1], op)
        self._emit(Event(Kind.tma_store, self._source(op), reads=(view,)))

    def _store_wait(self, op: Op) -> None:
        self._emit(Event(Kind.store_wait, self._source(op), amount=op.integer("pendings")))

    def _mma(self, op: Op) -> None:
        operands = [self._value(name) for name in op.operands[:2]]
        reads = tuple(operand for operand in operands if isinstance(operand, View))
        self._emit(Event(Kind.mma, self._source(op), reads=reads))
        if not op.integer("isAsync", 0):
            self._emit(Event(Kind.mma_wait, self._source(op)))
        self._opaque(op)

    def _mma_wait(self, op: Op) -> None:
        self._emit(Event(Kind.mma_wait, self._source(op), amount=op.integer("pendings")))
        for result, operand in zip(op.results, op.operands, strict=True):
            self.values[result] = self._value(operand)

    def _fence(self, op: Op) -> None:
        self._emit(Event(Kind.fence, self._source(op)))

    def _cp_async(self, op: Op) -> None:
        view = self._view(op.operands[1], op)
        self._emit(Event(Kind.cp_async, self._source(op), writes=(view,)))
        self._tokens(op)

    def _cp_commit(self, op: Op) -> None:
        self._emit(Event(Kind.cp_commit, self._source(op)))
        self._tokens(op)

    def _cp_wait(self, op: Op) -> None:
        self._emit(Event(Kind.cp_wait, self._source(op), amount=op.integer("num")))
        self._tokens(op)

    def _cp_arrive(self, op: Op) -> None:
        """`noIncrement` arrives for every thread; without it the count in the end stays as is."""
        threads = 32 * self.module.num_warps if op.has_flag("noIncrement") else 0
        self._emit_barrier(Kind.cp_arrive, op, amount=threads)

    def _tokens(self, op: Op) -> None:
        for result in op.results:
            self.values[result] = self._leaf(("token",), "token")

    def _ignore(self, op: Op) -> None:
        self._tokens(op)


def _number(op: Op) -> int:
    """The literal between the commas: a count or a size."""
    found = re.search(r", (\d+)\b", op.body)
    if not found:
        raise NotUnderstood(f"{op.name} without a number")
    return int(found[1])


def _memdesc(types: str) -> tuple[tuple[int, ...], int] | None:
    """Shape and bits of an element of the last buffer type named."""
    found = _MEMDESC.findall(types)
    if not found:
        return None
    shape, bits = found[-1]
    return tuple(int(n) for n in shape.rstrip("x").split("x")), int(bits)


_HANDLERS: dict[str, Callable[[_Unroller, Op], None]] = {
    "scf.for": _Unroller._for,
    "scf.while": _Unroller._while,
    "scf.if": _Unroller._if,
    "ttg.warp_specialize": _Unroller._specialize,
    "tt.call": _Unroller._call,
    "ttg.local_alloc": _Unroller._alloc,
    "ttng.tmem_alloc": _Unroller._alloc,
    "ttg.memdesc_index": _Unroller._index,
    "ttg.memdesc_subslice": _Unroller._subslice,
    "ttng.tmem_subslice": _Unroller._subslice,
    "ttg.memdesc_trans": _Unroller._same_bits,
    "ttg.memdesc_reshape": _Unroller._same_bits,
    "ttg.memdesc_reinterpret": _Unroller._same_bits,
    "ttg.local_load": _Unroller._read,
    "ttg.local_gather": _Unroller._read,
    "ttng.tmem_load": _Unroller._read,
    "ttg.local_store": _Unroller._write,
    "ttg.local_scatter": _Unroller._write,
    "ttng.tmem_store": _Unroller._write,
    "ttng.init_barrier": _Unroller._init,
    "ttng.inval_barrier": _Unroller._inval,
    "ttng.barrier_expect": _Unroller._expect,
    "ttng.arrive_barrier": _Unroller._arrive,
    "ttng.wait_barrier": _Unroller._wait,
    "ttng.async_tma_copy_global_to_local": _Unroller._tma_load,
    "ttng.async_tma_gather": _Unroller._tma_load,
    "ttng.async_tma_copy_local_to_global": _Unroller._tma_store,
    "ttng.async_tma_reduce": _Unroller._tma_store,
    "ttng.async_tma_scatter": _Unroller._tma_store,
    "ttng.async_tma_store_wait": _Unroller._store_wait,
    "ttng.warp_group_dot": _Unroller._mma,
    "ttng.warp_group_dot_wait": _Unroller._mma_wait,
    "ttng.fence_async_shared": _Unroller._fence,
    "ttng.fence_mbarrier_init_release_cluster": _Unroller._ignore,
    "ttg.async_copy_global_to_local": _Unroller._cp_async,
    "ttg.async_commit_group": _Unroller._cp_commit,
    "ttg.async_wait": _Unroller._cp_wait,
    "ttng.async_copy_mbarrier_arrive": _Unroller._cp_arrive,
}
