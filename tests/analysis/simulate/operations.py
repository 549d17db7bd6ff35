"""Child process: every operation of the interpreter on every dtype, against numpy and torch.

    TRITON_INTERPRET=1 python -m tests.analysis.simulate.operations [--original | --plain]

Prints one JSON line per operation and dtype: `[operation, dtype, what is wrong or ""]`. With
`--original` Triton's own interpreter runs instead of the corrected one, which shows its faults;
with `--plain` the corrected one on this process's own memory, as in an evaluation.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
import triton
from triton.runtime.interpreter import _interpreter

from runner.analysis import standin
from runner.analysis.address_space import Plain
from runner.analysis.interpreter_launch import install
from runner.analysis.memory import Memory
from runner.analysis.simulate_child import Questions
from runner.analysis.targets import DEFAULT, TARGETS
from runner.evaluate.modules import module_at

N = 64
TORCH = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint8": torch.uint8,
    "uint16": torch.uint16,
    "uint32": torch.uint32,
    "uint64": torch.uint64,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "int1": torch.bool,
}
TRITON = {"fp16": "float16", "bf16": "bfloat16", "fp32": "float32", "fp64": "float64"}
TRITON |= {"fp8e4nv": "float8e4nv", "fp8e5": "float8e5"}
FLOATS = ("fp16", "bf16", "fp32", "fp64")
WIDE_FLOATS = ("fp32", "fp64")
FLOAT8 = ("fp8e4nv", "fp8e5")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = SIGNED + UNSIGNED
NUMBERS = FLOATS + INTEGERS


@dataclass(frozen=True)
class Operation:
    """`body` computes o from x and y; `expected(x, y)` does so on float64 or exact integers.

    A body that begins with STATEMENT writes to `o_ptr` itself, which holds y before.

    `out` is the result's dtype, None for that of the inputs; `ulps` is how many units in the last
    place the result may be off, for operations that no hardware rounds exactly.
    """

    name: str
    dtypes: tuple[str, ...]
    body: str
    expected: Callable[[Any, Any], Any]
    out: str | None = None
    ulps: int = 0
    shape: tuple[int, ...] = (N,)
    result: tuple[int, ...] | None = None
    positive: bool = False


def numpy_of(tensor: torch.Tensor) -> Any:
    """What a tensor's bits mean: float64, or integers of its own width."""
    if tensor.dtype.is_floating_point:
        return tensor.double().numpy()
    return tensor.numpy()


def special(dtype: str) -> list[float]:
    """Values that catch wrong rounding, signs and ends."""
    if dtype in FLOATS + FLOAT8:
        kind = torch.finfo(TORCH[dtype])
        ends = [0.0, -0.0, 1.0, -1.0, 0.5, 2.5, 3.5, -2.5, kind.eps, 1 + kind.eps]
        return [*ends, kind.smallest_normal, kind.smallest_normal / 2]
    kind = torch.iinfo(TORCH[dtype])
    return [0, 1, 2, 3, 7, kind.max, kind.min, kind.max - 1]


def inputs(dtype: str, shape: tuple[int, ...], seed: int, positive: bool) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    count = math.prod(shape)
    if dtype == "int1":
        return (torch.rand(count, generator=generator) < 0.5).view(shape)
    if dtype in INTEGERS:
        kind = torch.iinfo(TORCH[dtype])
        low, high = max(kind.min, -(2**62)), min(kind.max, 2**62)
        values = torch.randint(low, high, (count,), generator=generator).numpy()
        small = torch.randint(0, 12, (count,), generator=generator).numpy()
        mixed = np.where(np.arange(count) % 2 == 0, values, small).astype(np.int64)
        drawn = mixed.astype(f"{'u' if dtype[0] == 'u' else ''}int{kind.bits}")
    else:
        values = torch.randn(count, generator=generator, dtype=torch.float64)
        scale = torch.exp2(torch.randint(-3, 3, (count,), generator=generator).double())
        drawn = (values * scale).numpy()
    if positive:
        drawn = np.abs(drawn) + 1 if dtype in FLOATS + FLOAT8 else np.maximum(drawn, 1)
    elif len(shape) == 1:
        ends = np.array(special(dtype)).astype(drawn.dtype)
        drawn[: len(ends)] = np.roll(ends, seed)
    return torch.from_numpy(np.ascontiguousarray(drawn)).to(TORCH[dtype]).view(shape)


def expected_bits(values: Any, dtype: str) -> torch.Tensor:
    """The exact answer rounded once to the result's dtype."""
    values = np.asarray(values)
    if dtype in FLOAT8:
        limit = torch.finfo(TORCH[dtype]).max
        return torch.from_numpy(np.clip(values, -limit, limit)).float().to(TORCH[dtype])
    if values.dtype.kind == "O":
        bits = torch.iinfo(TORCH[dtype]).bits
        wrapped = np.array([int(v) % 2**bits for v in values.flat], dtype=f"uint{bits}")
        return (
            torch.from_numpy(wrapped.view(f"int{bits}").copy())
            .view(TORCH[dtype])
            .view(values.shape)
        )
    return torch.from_numpy(np.ascontiguousarray(values)).to(TORCH[dtype])


def difference(got: torch.Tensor, want: torch.Tensor, ulps: int) -> str:
    """The first element that is off by more than `ulps`, in words."""
    want = want.view(got.shape)
    if got.dtype.is_floating_point:
        a, b = got.double(), want.double()
        unit = ulps * torch.finfo(got.dtype).eps * b.abs().clamp_min(1e-30)
        same = (a == b) | (a.isnan() & b.isnan()) | ((a - b).abs() <= unit)
    else:
        a, b = got, want
        same = a.view(torch.int8) == b.view(torch.int8) if a.dtype == torch.bool else a == b
    if bool(same.all()):
        return ""
    place = int((~same).flatten().int().argmax())
    return f"[{place}] is {a.flatten()[place].item()}, expected {b.flatten()[place].item()}"


def ints(function: Callable[[int, int], int]) -> Callable[[Any, Any], Any]:
    """A function of Python's integers, element by element; wrapped to the dtype afterwards."""
    return np.vectorize(lambda a, b: function(int(a), int(b)), otypes=[object])


def c_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def maxnum(x: Any, y: Any) -> Any:
    return np.fmax(x, y)


def unary(function: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(x)


def arithmetic() -> Iterator[Operation]:
    yield Operation("add", FLOATS, "x + y", lambda x, y: x + y)
    yield Operation("sub", FLOATS, "x - y", lambda x, y: x - y)
    yield Operation("mul", FLOATS, "x * y", lambda x, y: x * y)
    yield Operation("div", FLOATS, "x / y", lambda x, y: x / y, positive=True, ulps=1)
    yield Operation("neg", FLOATS + SIGNED, "-x", unary(lambda x: np.negative(x)))
    yield Operation("abs", FLOATS + SIGNED, "tl.abs(x)", unary(np.abs))
    yield Operation("maximum", NUMBERS, "tl.maximum(x, y)", np.fmax)
    yield Operation("minimum", NUMBERS, "tl.minimum(x, y)", np.fmin)
    nan = "tl.where(i % 3 == 0, float('nan'), x.to(tl.float32)).to(x.dtype)"
    keep = lambda x, y: np.where(np.arange(N) % 3 == 0, y, np.fmax(x, y))  # noqa: E731
    yield Operation("maximum of NaN", FLOATS[:3], f"tl.maximum({nan}, y)", keep)
    keep = lambda x, y: np.where(np.arange(N) % 3 == 0, np.nan, np.maximum(x, y))  # noqa: E731
    spread = f"tl.maximum({nan}, y, propagate_nan=tl.PropagateNan.ALL)"
    yield Operation("maximum that propagates NaN", FLOATS[:3], spread, keep)
    yield Operation("clamp", FLOATS, "tl.clamp(x, -0.5, 0.75)", unary(lambda x: x.clip(-0.5, 0.75)))
    low = lambda x, y: np.where(np.arange(N) % 3 == 0, -0.5, x.clip(-0.5, 0.75))  # noqa: E731
    yield Operation("clamp of NaN", FLOATS[:3], f"tl.clamp({nan}, -0.5, 0.75)", low)
    yield Operation("fma", FLOATS, "tl.fma(x, y, x)", lambda x, y: x * y + x, ulps=1)
    yield Operation("where", FLOATS, "tl.where(x > y, x, y)", lambda x, y: np.where(x > y, x, y))
    yield Operation("scalar", FLOATS, "x * 0.75", unary(lambda x: x * 0.75))


def comparisons() -> Iterator[Operation]:
    for sign, function in {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
    }.items():
        yield Operation(sign, NUMBERS, f"x {sign} y", function, out="int1")
        body = f"(x {sign} y).to(tl.float32).to(x.dtype)"
        yield Operation(f"{sign} as number", FLOATS, body, function)
    yield Operation("truth to dtype", FLOATS, "(x > y).to(x.dtype)", np.greater)


def integers() -> Iterator[Operation]:
    yield Operation("add", INTEGERS, "x + y", ints(lambda a, b: a + b))
    yield Operation("sub", INTEGERS, "x - y", ints(lambda a, b: a - b))
    yield Operation("mul", INTEGERS, "x * y", ints(lambda a, b: a * b))
    whole = {"positive": True}
    yield Operation("//", INTEGERS, "x // y", ints(c_quotient), **whole)  # type: ignore[arg-type]
    signed = ints(lambda a, b: c_quotient(-a, b))
    yield Operation("// of negative", SIGNED, "(-x) // y", signed, **whole)  # type: ignore[arg-type]
    rest = ints(lambda a, b: -a - c_quotient(-a, b) * b)
    yield Operation("% of negative", SIGNED, "(-x) % y", rest, **whole)  # type: ignore[arg-type]
    yield Operation("&", INTEGERS, "x & y", ints(lambda a, b: a & b))
    yield Operation("|", INTEGERS, "x | y", ints(lambda a, b: a | b))
    yield Operation("^", INTEGERS, "x ^ y", ints(lambda a, b: a ^ b))
    yield Operation("~", INTEGERS, "~x", ints(lambda a, b: ~a))
    yield Operation("<<", INTEGERS, "x << 3", ints(lambda a, b: a << 3))
    yield Operation(">>", INTEGERS, "x >> 3", ints(lambda a, b: a >> 3))
    for dtype in ("int32", "int64", "uint32", "uint64"):
        bits = torch.iinfo(TORCH[dtype]).bits
        high = ints(lambda a, b, n=bits: (a % 2**n) * (b % 2**n) >> n)  # type: ignore[misc]
        yield Operation("umulhi", (dtype,), "tl.umulhi(x, y)", high)


def functions() -> Iterator[Operation]:
    erf = np.vectorize(math.erf)
    table: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "exp": ("tl.exp(x)", np.exp),
        "exp2": ("tl.exp2(x)", np.exp2),
        "log": ("tl.log(x)", np.log),
        "log2": ("tl.log2(x)", np.log2),
        "sin": ("tl.sin(x)", np.sin),
        "cos": ("tl.cos(x)", np.cos),
        "sqrt": ("tl.sqrt(x)", np.sqrt),
        "rsqrt": ("tl.rsqrt(x)", lambda x: 1 / np.sqrt(x)),
        "sqrt_rn": ("tl.sqrt_rn(x)", np.sqrt),
        "erf": ("tl.erf(x)", erf),
        "floor": ("tl.floor(x)", np.floor),
        "ceil": ("tl.ceil(x)", np.ceil),
        "sigmoid": ("tl.sigmoid(x)", lambda x: 1 / (1 + np.exp(-x))),
        "tanh": ("libdevice.tanh(x)", np.tanh),
        "log1p": ("libdevice.log1p(x)", np.log1p),
    }
    for name, (body, function) in table.items():
        wide = ("fp32",) if name == "sqrt_rn" else WIDE_FLOATS
        yield Operation(name, wide, body, unary(function), ulps=4, positive=True)


def conversions() -> Iterator[Operation]:
    for source, target in itertools.product(NUMBERS + FLOAT8 + ("int1",), NUMBERS + FLOAT8):
        if source == target or (source in FLOAT8 and target in FLOAT8):
            continue
        if (source in FLOAT8 and target in INTEGERS) or (target in FLOAT8 and source not in FLOATS):
            continue  # Triton converts fp8 to floats only
        name = TRITON.get(target, target)
        body, expected = f"x.to(tl.{name})", unary(lambda x: x)
        if target in INTEGERS and source in FLOATS + FLOAT8:
            expected = unary(np.trunc)
            if target in UNSIGNED:
                body, expected = f"tl.abs(x).to(tl.{name})", unary(lambda x: np.trunc(np.abs(x)))
        elif target in INTEGERS:
            expected = ints(lambda a, b: a)
        yield Operation(f"to {target}", (source,), body, expected, out=target)
    zero = unary(lambda x: x)
    for target in ("fp16", "bf16"):
        body = f"x.to(tl.{TRITON[target]}, fp_downcast_rounding='rtz')"
        yield Operation(f"to {target}, rtz", ("fp32",), body, _truncated(target), out=target)
    yield Operation("bitcast", ("fp32",), "x.to(tl.int32, bitcast=True)", _bits, out="int32")
    yield Operation(
        "full", FLOATS, "tl.full((64,), 1.5, x.dtype) + x * 0", lambda x, y: x * 0 + 1.5
    )
    yield Operation("round trip", FLOATS[:3], "x.to(tl.float32).to(x.dtype)", zero)


def _truncated(target: str) -> Callable[[Any, Any], Any]:
    bits = {"fp16": 13, "bf16": 16}[target]

    def expected(x: Any, y: Any) -> Any:
        raw = x.astype(np.float32).view(np.uint32)
        cut = (raw >> bits << bits).view(np.float32).astype(np.float64)
        tiny = np.abs(x) < torch.finfo(TORCH[target]).smallest_normal
        step = torch.finfo(TORCH[target]).smallest_normal * torch.finfo(TORCH[target]).eps
        return np.where(tiny, np.trunc(x / step) * step, cut)

    return expected


def _bits(x: Any, y: Any) -> Any:
    return x.astype(np.float32).view(np.int32)


def reductions() -> Iterator[Operation]:
    square, row = (8, 16), (8,)
    exact = INTEGERS + WIDE_FLOATS
    wrap = lambda x: np.vectorize(int, otypes=[object])(x)  # noqa: E731
    for dtype in NUMBERS:
        narrow = dtype in ("int8", "int16", "uint8", "uint16")
        wide = ("uint32" if dtype[0] == "u" else "int32") if narrow else dtype
        total = unary(lambda x: (wrap(x) if x.dtype.kind in "iu" else x).sum(1))
        ulps = 16 if dtype in FLOATS else 0
        shapes: dict[str, Any] = {"shape": square, "result": row}
        yield Operation(
            "sum",
            (dtype,),
            "tl.sum(x, 1)",
            total,
            out=wide,
            ulps=ulps,
            positive=dtype in FLOATS,
            **shapes,
        )
        yield Operation("max", (dtype,), "tl.max(x, 1)", unary(lambda x: x.max(1)), **shapes)
        yield Operation("min", (dtype,), "tl.min(x, 1)", unary(lambda x: x.min(1)), **shapes)
        arg = unary(lambda x: x.argmax(1))
        yield Operation("argmax", (dtype,), "tl.argmax(x, 1)", arg, out="int32", **shapes)
        arg = unary(lambda x: x.argmin(1))
        yield Operation("argmin", (dtype,), "tl.argmin(x, 1)", arg, out="int32", **shapes)
        body = "tl.reduce(x, 1, larger)"
        yield Operation("reduce", (dtype,), body, unary(lambda x: x.max(1)), **shapes)
        body = "tl.associative_scan(x, 1, larger)"
        running = unary(lambda x: np.maximum.accumulate(x, 1))
        yield Operation("scan", (dtype,), body, running, shape=square)
        back = unary(lambda x: np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1])
        body = "tl.associative_scan(x, 1, larger, reverse=True)"
        yield Operation("scan, reverse", (dtype,), body, back, shape=square)
    yield Operation(
        "sum of all",
        exact,
        "tl.sum(x) + tl.zeros((1,), tl.int32)",
        unary(lambda x: np.atleast_1d(wrap(x).sum() if x.dtype.kind in "iu" else x.sum())),
        result=(1,),
        ulps=16,
        positive=True,
    )
    yield Operation(
        "sum, axis 0",
        ("fp32", "int32"),
        "tl.sum(x, 0)",
        unary(lambda x: x.sum(0)),
        shape=square,
        result=(16,),
        ulps=16,
        positive=True,
    )
    yield Operation(
        "xor_sum",
        ("int32", "uint32"),
        "tl.xor_sum(x, 1)",
        unary(lambda x: np.bitwise_xor.reduce(x, axis=1)),
        shape=square,
        result=row,
    )
    for dtype in ("fp32", "int32", "fp16", "bf16"):
        body, out = "tl.cumsum(x, 0)", "fp32" if dtype == "bf16" else dtype
        yield Operation(
            "cumsum",
            (dtype,),
            body,
            unary(lambda x: x.cumsum(0, dtype=x.dtype)),
            ulps=4096,
            out=out,
            positive=True,
        )
    yield Operation(
        "cumprod",
        ("fp32",),
        "tl.cumprod(x, 1)",
        unary(lambda x: x.cumprod(1)),
        ulps=64,
        shape=square,
    )


def rearrangements() -> Iterator[Operation]:
    some = ("fp32", "bf16", "int32", "int64", "uint8")
    square = (8, 16)
    yield Operation("sort", ("fp32", "fp16", "int32", "int64"), "tl.sort(x)", unary(np.sort))
    yield Operation(
        "sort, descending",
        ("fp32", "int32"),
        "tl.sort(x, descending=True)",
        unary(lambda x: np.sort(x)[::-1]),
    )
    yield Operation("flip", some, "tl.flip(x, 0)", unary(lambda x: x[::-1]))
    yield Operation(
        "trans", some, "tl.trans(x)", unary(lambda x: x.T), shape=square, result=(16, 8)
    )
    yield Operation(
        "reshape",
        some,
        "tl.reshape(x, (16, 8))",
        unary(lambda x: x.reshape(16, 8)),
        shape=square,
        result=(16, 8),
    )
    yield Operation("join and split", some, "tl.split(tl.join(x, y))[1]", lambda x, y: y)
    yield Operation(
        "interleave",
        some,
        "tl.interleave(x, y)",
        lambda x, y: np.stack([x, y], -1).reshape(-1),
        result=(128,),
    )
    yield Operation("gather", some, "tl.gather(x, (63 - i), 0)", unary(lambda x: x[::-1]))
    count = lambda x, y: np.bincount(x[(x >= 0) & (x < 8)].astype(int), minlength=8)  # noqa: E731
    yield Operation(
        "histogram",
        ("int32", "int64", "uint8", "int8"),
        "tl.histogram(x, 8)",
        count,
        out="int32",
        result=(8,),
    )
    many = "tl.histogram(tl.full((512,), 1, x.dtype), 8)"
    yield Operation(
        "histogram of many",
        ("int32", "uint8"),
        many,
        lambda x, y: np.array([0, 512, 0, 0, 0, 0, 0, 0]),
        out="int32",
        result=(8,),
    )
    yield Operation(
        "permute", some, "tl.permute(x, (1, 0))", unary(lambda x: x.T), shape=square, result=(16, 8)
    )
    wide = "tl.broadcast_to(tl.expand_dims(x, 1), (64, 2))"
    yield Operation("broadcast", some, wide, unary(lambda x: np.repeat(x, 2)), result=(128,))
    both = "tl.sort(tl.cat(x, y, can_reorder=True))"
    yield Operation(
        "cat", some[:1], both, lambda x, y: np.sort(np.concatenate([x, y])), result=(128,)
    )
    pairs = "tl.reduce((x, i), 0, larger_pair)[1] + tl.zeros((1,), tl.int32)"
    first = unary(lambda x: np.array([x.argmax()]))
    yield Operation("reduce of pairs", NUMBERS, pairs, first, out="int32", result=(1,))
    kept = "tl.max(x, 1, keep_dims=True) + x * 0"
    largest = unary(lambda x: np.repeat(x.max(1, keepdims=True), 16, 1))
    yield Operation("keep_dims", ("fp32", "int32"), kept, largest, shape=square)
    old = "tl.atomic_add(x_ptr + i, y)"
    yield Operation("old value of an atomic", ("fp32", "bf16", "int64"), old, lambda x, y: x)
    yield Operation("while", ("int32",), "halved(x)", unary(lambda x: x * 0))
    yield Operation("if", ("int32",), "either_way(x)", unary(lambda x: x if x[1] < 2 else -x))
    ties = "tl.argmin(x // 4 * 4 * 0, 0) + tl.zeros((1,), tl.int32)"
    yield Operation("argmin of ties", ("int32",), ties, lambda x, y: np.array([0]), result=(1,))
    yield Operation(
        "and", ("fp32",), "tl.where((x > 0) and (y > 0), 1.0, 0.0)", lambda x, y: (x > 0) & (y > 0)
    )
    yield Operation(
        "or, not",
        ("fp32",),
        "tl.where((x > 0) or (not (y > 0)), 1.0, 0.0)",
        lambda x, y: (x > 0) | ~(y > 0),
    )


def dots() -> Iterator[Operation]:
    shape = (16, 16)
    for dtype in (*FLOATS, *FLOAT8, "int8"):
        out = {"fp64": "fp64", "int8": "int32"}.get(dtype, "fp32")
        body = "tl.dot(x, y, input_precision='ieee')"
        wide = lambda x, y: x.astype(np.float64) @ y.astype(np.float64)  # noqa: E731
        ulps = 0 if out == "int32" else 64
        yield Operation("dot", (dtype,), body, wide, out=out, shape=shape, ulps=ulps, positive=True)
    cut = lambda x: (x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32)  # noqa: E731
    tensor_cores = lambda x, y: cut(x).astype(float) @ cut(y).astype(float)  # noqa: E731
    yield Operation(
        "dot, tf32", ("fp32",), "tl.dot(x, y)", tensor_cores, shape=shape, ulps=64, positive=True
    )
    batch = lambda x, y: x @ y  # noqa: E731
    yield Operation(
        "dot, batched",
        ("fp16", "bf16"),
        "tl.dot(x, y)",
        batch,
        out="fp32",
        shape=(2, 16, 16),
        ulps=64,
        positive=True,
    )
    yield Operation(
        "dot, fp16 sum",
        ("fp16",),
        "tl.dot(x, y, out_dtype=tl.float16)",
        batch,
        shape=shape,
        ulps=8,
        positive=True,
    )


def atomics() -> Iterator[Operation]:
    """All lanes of a group of eight meet at one element; `o_ptr` holds every eighth y before."""
    kinds: dict[str, tuple[tuple[str, ...], Callable[[Any, Any], Any]]] = {
        "add": (("int32", "int64", "uint32", "fp16", "bf16", "fp32", "fp64"), np.add),
        "max": (("int32", "int64", "uint32", "fp32", "fp64"), np.maximum),
        "min": (("int32", "int64", "uint32", "fp32", "fp64"), np.minimum),
        "and": (("int32", "int64"), np.bitwise_and),
        "or": (("int32", "int64"), np.bitwise_or),
        "xor": (("int32", "int64"), np.bitwise_xor),
        "xchg": (("int32", "fp32"), lambda a, b: b),
    }
    for kind, (dtypes, function) in kinds.items():
        for dtype in dtypes:
            body = f"STATEMENT tl.atomic_{kind}(o_ptr + i // 8, x)"
            yield Operation(f"atomic_{kind}", (dtype,), body, _met(function, dtype), result=(8,))
    body = "STATEMENT tl.atomic_cas(o_ptr + i // 8, y, x)"
    yield Operation("atomic_cas", ("int32", "int64"), body, _swapped, result=(8,))


def _met(function: Any, dtype: str) -> Callable[[Any, Any], Any]:
    def expected(x: Any, y: Any) -> Any:
        value = torch.from_numpy(np.ascontiguousarray(y[::8])).to(TORCH[dtype])
        for lane in range(8):
            with np.errstate(all="ignore"):
                step = function(numpy_of(value), x[lane::8])
            value = torch.from_numpy(np.ascontiguousarray(step)).to(TORCH[dtype])
        return numpy_of(value)

    return expected


def _swapped(x: Any, y: Any) -> Any:
    value = y[::8].copy()
    for lane in range(8):
        value = np.where(value == y[lane::8], x[lane::8], value)
    return value


def descriptors() -> Iterator[Operation]:
    some = ("fp32", "bf16", "int32")
    square = (8, 16)
    made = "tl.make_tensor_descriptor({0}, [8, 16], [16, 1], [{1}, 16])"
    x, o = made.format("x_ptr", 1), made.format("o_ptr", 1)
    backwards = "7 - tl.arange(0, 8)"
    reverse = unary(lambda x: x[::-1])
    yield Operation("descriptor gather", some, f"{x}.gather({backwards}, 0)", reverse, shape=square)
    body = f"STATEMENT {o}.scatter(x, {backwards}, 0)"
    yield Operation("descriptor scatter", some, body, reverse, shape=square)
    o = made.format("o_ptr", 8)
    past = unary(lambda x: np.concatenate([x[4:], np.zeros_like(x[:4])]))
    body = f"{made.format('x_ptr', 8)}.load([4, 0])"
    yield Operation("descriptor load", some, body, past, shape=square)
    body = f"{made.format('x_ptr', 8)}.load([0, 3])"
    right = unary(lambda x: np.concatenate([x[:, 3:], np.zeros_like(x[:, :3])], axis=1))
    yield Operation("descriptor load at an odd column", some, body, right, shape=square)
    kept = lambda x, y: np.concatenate([y[:4], x[:4]])  # noqa: E731
    yield Operation("descriptor store", some, f"STATEMENT {o}.store([4, 0], x)", kept, shape=square)
    for kind, function in {"add": np.add, "max": np.maximum, "min": np.minimum}.items():
        body = f"STATEMENT {o}.atomic_{kind}([0, 0], x)"
        dtypes = ("fp32", "bf16", "int32") if kind == "add" else ("bf16", "int32")
        yield Operation(f"descriptor atomic_{kind}", dtypes, body, function, shape=square)
    block = "tl.make_block_ptr(x_ptr, (8, 16), (16, 1), (4, 0), (8, 16), (1, 0))"
    body = f"tl.load({block}, boundary_check=(0,), padding_option='zero')"
    yield Operation("block pointer load", some, body, past, shape=square)
    body = f"tl.load({block}, boundary_check=(0,), padding_option='nan')"
    nan = unary(lambda x: np.concatenate([x[4:], np.full_like(x[:4], np.nan)]))
    yield Operation("block pointer load of NaN", ("fp32", "bf16"), body, nan, shape=square)
    block = "tl.make_block_ptr(o_ptr, (8, 16), (16, 1), (0, 0), (8, 16), (1, 0))"
    body = f"STATEMENT tl.store(tl.advance({block}, (4, 0)), x, boundary_check=(0, 1))"
    yield Operation("block pointer store", some, body, kept, shape=square)


GROUPS = (
    descriptors,
    arithmetic,
    comparisons,
    integers,
    functions,
    conversions,
    reductions,
    rearrangements,
    dots,
    atomics,
)
HEADER = """
import triton
import triton.language as tl
from triton.language.extra import libdevice

@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)

@triton.jit
def larger_pair(a, i, b, j):
    first = (a > b) | ((a == b) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)

@triton.jit
def halved(x):
    while tl.max(tl.abs(x)) > 0:
        x = tl.where(x == -2147483648, 0, x) // 2
    return x

@triton.jit
def either_way(x):
    second = tl.sum(tl.where(tl.arange(0, 64) == 1, x, 0))
    if second < 2 and second > -2147483648:
        return x
    else:
        return -x
"""
KERNEL = """
@triton.jit
def kernel_{number}(x_ptr, y_ptr, o_ptr):
    i = tl.arange(0, {count})
    x = tl.reshape(tl.load(x_ptr + i), {shape})
    y = tl.reshape(tl.load(y_ptr + i), {shape})
    {statement}
"""


def source_of(operations: list[tuple[Operation, str]]) -> str:
    text = HEADER
    for number, (operation, _) in enumerate(operations):
        count = math.prod(operation.result or operation.shape)
        flat = f"tl.reshape({operation.body}, ({count},))"
        statement = f"tl.store(o_ptr + tl.arange(0, {count}), {flat})"
        if operation.body.startswith("STATEMENT "):
            statement = operation.body.removeprefix("STATEMENT ")
        text += KERNEL.format(
            number=number,
            count=math.prod(operation.shape),
            shape=operation.shape,
            statement=statement,
        )
    return text


def module_of(source: str, folder: str) -> ModuleType:
    path = Path(folder) / "kernels_under_test.py"
    path.write_text(source)
    return module_at(path, "kernels_under_test")


def check(kernel: Any, operation: Operation, dtype: str) -> str:
    x, y = (inputs(dtype, operation.shape, seed, operation.positive) for seed in (1, 2))
    out = operation.out or dtype
    shape = operation.result or operation.shape
    result = torch.zeros(shape, dtype=TORCH[out])
    if operation.body.startswith("STATEMENT "):
        result = (y[::8] if operation.result else y).contiguous().clone()
    with np.errstate(all="ignore"):
        want = operation.expected(numpy_of(x.clone()), numpy_of(y.clone()))
    try:
        kernel[(1,)](x, y, result)
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return difference(result, expected_bits(want, out), operation.ulps)


def main(how: str) -> None:
    driver = standin.Driver(TARGETS[DEFAULT], Questions())
    triton.runtime.driver.set_active(driver)  # some operations ask what the target can do
    if how != "--original":
        plain = how == "--plain"
        install(Plain(_interpreter) if plain else Memory("kernels_under_test.py"))
    operations = [(o, dtype) for group in GROUPS for o in group() for dtype in o.dtypes]
    with tempfile.TemporaryDirectory() as folder:
        module = module_of(source_of(operations), folder)
        for number, (operation, dtype) in enumerate(operations):
            wrong = check(getattr(module, f"kernel_{number}"), operation, dtype)
            print(json.dumps([operation.name, dtype, wrong]), flush=True)


if __name__ == "__main__":
    main("".join(sys.argv[1:]))
