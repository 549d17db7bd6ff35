"""Triton's interpreter with its arithmetic corrected and its memory in an `AddressSpace`.

Owns what each operation of the language computes; docs/analysis.md lists what was wrong before.
Where an operation is not understood it raises Unsupported, never a guess. It launches nothing and
judges no access.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import triton.language as tl
from triton.runtime import interpreter as original
from triton.runtime.interpreter import TensorHandle

from runner.analysis.address_space import AddressSpace
from runner.analysis.interpreter_blocks import padding, rows, tile
from runner.analysis.interpreter_libdevice import function_of
from runner.analysis.interpreter_values import (
    Array,
    as_tf32,
    handle_of,
    not_a_number,
    numbers,
    storage_of,
    to_integer,
)
from runner.analysis.memory_allocation import Element
from runner.analysis.memory_sightings import NoteKind

ir = original._ir
ORDERING = {
    ir.MEM_SEMANTIC.RELAXED: (False, False),
    ir.MEM_SEMANTIC.ACQUIRE: (True, False),
    ir.MEM_SEMANTIC.RELEASE: (False, True),
    ir.MEM_SEMANTIC.ACQUIRE_RELEASE: (True, True),
}  # → does it acquire, does it release
_UPDATES: dict[Any, Callable[[Array, Array], Array]] = {
    ir.ATOMIC_OP.ADD: np.add,
    ir.ATOMIC_OP.FADD: np.add,
    ir.ATOMIC_OP.MIN: np.minimum,
    ir.ATOMIC_OP.UMIN: np.minimum,
    ir.ATOMIC_OP.MAX: np.maximum,
    ir.ATOMIC_OP.UMAX: np.maximum,
    ir.ATOMIC_OP.AND: np.bitwise_and,
    ir.ATOMIC_OP.OR: np.bitwise_or,
    ir.ATOMIC_OP.XOR: np.bitwise_xor,
    ir.ATOMIC_OP.XCHG: lambda old, new: new,
}


class Unsupported(NotImplementedError):
    """The interpreter does not know this operation; `operation` is its name."""

    def __init__(self, operation: str) -> None:
        super().__init__(operation)
        self.operation = operation


class Builder(original.InterpreterBuilder):
    """Computes one operation after the other on numpy arrays, as the hardware would round them."""

    def __init__(self, memory: AddressSpace) -> None:
        super().__init__()
        self.memory = memory
        # A GPU wraps around silently; an offset that wrapped is found where it is used.
        # Without debug the language drops assertions before they come here.
        self.options = original.InterpreterOptions(sanitize_overflow=False, debug=True)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise Unsupported(_called_operation() or name)

    # constants

    def get_bf16(self, value: float) -> TensorHandle:
        return handle_of(np.array([value], dtype=np.float64), tl.bfloat16)

    def get_all_ones_value(self, type: Any) -> TensorHandle:
        storage = storage_of(type)
        ones = np.frombuffer(b"\xff" * storage.itemsize, dtype=storage)
        return TensorHandle(ones if storage != np.bool_ else np.array([True]), type.scalar)

    # arithmetic

    def binary_op(self, lhs: TensorHandle, rhs: TensorHandle, op: Any) -> TensorHandle:
        with np.errstate(all="ignore"):
            result = op(numbers(lhs), numbers(rhs))
        return _result(result, lhs.dtype.scalar)

    def unary_op(self, arg: TensorHandle, op: Any) -> TensorHandle:
        with np.errstate(all="ignore"):
            return _result(op(numbers(arg)), arg.dtype.scalar)

    def ternary_op(
        self, lhs: TensorHandle, rhs: TensorHandle, other: TensorHandle, op: Any
    ) -> TensorHandle:
        with np.errstate(all="ignore"):
            return _result(op(numbers(lhs), numbers(rhs), numbers(other)), other.dtype.scalar)

    def create_select(self, cond: TensorHandle, lhs: TensorHandle, rhs: TensorHandle) -> Any:
        other = rhs.data.astype(lhs.data.dtype, copy=False)  # bits of either sign may meet here
        return TensorHandle(np.where(cond.data, lhs.data, other), lhs.dtype.scalar)

    def create_minnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmin)

    def create_maxnumf(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        return self.binary_op(lhs, rhs, np.fmax)

    def create_clampf(
        self, arg: TensorHandle, lo: TensorHandle, hi: TensorHandle, propagate_nans: Any
    ) -> TensorHandle:
        if propagate_nans == ir.PROPAGATE_NAN.ALL:
            return self.ternary_op(arg, lo, hi, lambda x, a, b: np.minimum(np.maximum(x, a), b))
        return self.ternary_op(arg, lo, hi, lambda x, a, b: np.fmin(np.fmax(x, a), b))

    def create_fma(self, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
        """One rounding: the product of two numbers of at most 32 bits is exact in float64."""
        a, b, c = (numbers(value).astype(np.float64) for value in (x, y, z))
        with np.errstate(all="ignore"):
            return _result(a * b + c, z.dtype.scalar)

    def create_idiv(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """Towards zero, as in C; what a divisor of zero gives is as unspecified as on a GPU."""
        divisor = np.where(rhs.data == 0, rhs.data.dtype.type(1), rhs.data)
        with np.errstate(all="ignore"):
            return _result((lhs.data - np.fmod(lhs.data, divisor)) // divisor, lhs.dtype.scalar)

    def _remainder(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        divisor = np.where(rhs.data == 0, rhs.data.dtype.type(1), rhs.data)
        return _result(np.fmod(lhs.data, divisor), lhs.dtype.scalar)

    create_srem = create_urem = _remainder

    def create_ashr(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        signed = original._get_signed_np_dtype(lhs.data.dtype)
        shifted = np.right_shift(lhs.data.astype(signed), rhs.data.astype(signed))
        return TensorHandle(shifted.astype(lhs.data.dtype), lhs.dtype.scalar)

    def create_umulhi(self, lhs: TensorHandle, rhs: TensorHandle) -> TensorHandle:
        """The high half of the unsigned product, whatever sign the operands' dtype has."""
        bits = lhs.data.dtype.itemsize * 8
        unsigned = np.dtype(f"uint{bits}")
        a, b = lhs.data.view(unsigned), rhs.data.view(unsigned)
        if bits < 64:
            high = (a.astype(np.uint64) * b.astype(np.uint64)) >> np.uint64(bits)
        else:
            high = ((a.astype(object) * b.astype(object)) >> 64).astype(np.uint64)
        return TensorHandle(high.astype(unsigned).view(lhs.data.dtype), lhs.dtype.scalar)

    def create_fabs(self, arg: TensorHandle) -> TensorHandle:
        return self.unary_op(arg, np.abs)

    def create_erf(self, arg: TensorHandle) -> TensorHandle:
        return self.unary_op(arg, np.vectorize(math.erf, otypes=[np.float64]))

    # conversions

    def cast_impl(self, src: TensorHandle, dst_type: Any) -> TensorHandle:
        return self.create_fp_to_fp(src, dst_type, None)

    def create_fp_to_fp(self, src: TensorHandle, dst_type: Any, rounding_mode: Any) -> TensorHandle:
        dtype = dst_type.scalar
        values = numbers(src)
        if dtype.is_int1():
            return TensorHandle(values != 0, dtype)
        if dtype.is_int() and values.dtype.kind == "f":
            return TensorHandle(to_integer(values, storage_of(dtype)), dtype)
        toward_zero = rounding_mode == ir.ROUNDING_MODE.RTZ
        return handle_of(values, dtype, toward_zero=toward_zero)

    def create_bitcast(self, src: TensorHandle, dst_type: Any) -> TensorHandle:
        storage = storage_of(dst_type)
        return TensorHandle(np.ascontiguousarray(src.data).view(storage), dst_type.scalar)

    create_int_to_ptr = create_ptr_to_int = create_bitcast

    # linear algebra and tables

    def create_dot(
        self,
        a: TensorHandle,
        b: TensorHandle,
        d: TensorHandle,
        input_precision: Any,
        max_num_imprecise_acc: Any,
    ) -> TensorHandle:
        """Sums in float32 (float64 for fp64; whole numbers exactly), added to d, rounded once."""
        x, y = numbers(a), numbers(b)
        if x.dtype.kind in "iub":
            product = np.matmul(x.astype(np.float64), y.astype(np.float64)).astype(np.int64)
            return _result(product + d.data.astype(np.int64), d.dtype.scalar)
        if a.dtype.scalar.is_fp32() and input_precision == ir.INPUT_PRECISION.TF32:
            x, y = as_tf32(x), as_tf32(y)
        wide = np.float64 if a.dtype.scalar.is_fp64() else np.float32
        with np.errstate(all="ignore"):
            product = np.matmul(x.astype(wide, copy=False), y.astype(wide, copy=False))
            return _result(product + numbers(d).astype(wide, copy=False), d.dtype.scalar)

    def create_histogram(self, data: TensorHandle, bins: int, mask: TensorHandle | None) -> Any:
        counted = (data.data >= 0) & (data.data < bins)
        if mask is not None:
            counted = counted & mask.data
        counts = np.bincount(data.data[counted].astype(np.int64), minlength=bins)
        return TensorHandle(counts.astype(np.int32), tl.int32)

    def create_gather(self, src: TensorHandle, indices: TensorHandle, axis: int) -> TensorHandle:
        places = indices.data.astype(np.int64)
        if ((places < 0) | (places >= src.data.shape[axis])).any():
            raise IndexError(f"tl.gather: an index lies outside 0 … {src.data.shape[axis] - 1}")
        return TensorHandle(np.take_along_axis(src.data, places, axis=axis), src.dtype.scalar)

    def create_extern_elementwise(
        self,
        library: str,
        path: str,
        symbol: str,
        arguments: Sequence[TensorHandle],
        result_type: Any,
        pure: bool,
    ) -> TensorHandle:
        function = function_of(symbol)
        if function is None:
            raise Unsupported(f"extern_elementwise {symbol}")
        with np.errstate(all="ignore"):
            values = function(*(numbers(argument) for argument in arguments))
        return handle_of(values, result_type.scalar)

    def create_inline_asm(self, *arguments: Any) -> Any:
        raise Unsupported("inline_asm_elementwise")

    def create_assert(self, condition: TensorHandle, message: str) -> None:
        """A GPU checks it only in debug mode, so it is reported and the kernel goes on."""
        if not condition.data.all():
            self.memory.note(NoteKind.assertion, f"tl.device_assert fails: {message}")

    def create_assume(self, condition: TensorHandle) -> None:
        if not condition.data.all():
            words = "tl.assume is given something false: the compiler may do anything"
            self.memory.note(NoteKind.assumption, words)

    def create_print(self, *arguments: Any) -> None:
        """Printing is no part of a simulation."""

    # memory

    def create_load(self, ptr: TensorHandle, _0: Any, _1: Any, is_volatile: bool) -> TensorHandle:
        return self._load(ptr, None, None, is_volatile)

    def create_masked_load(
        self,
        ptrs: TensorHandle,
        mask: TensorHandle,
        other: TensorHandle | None,
        cache_modifier: Any,
        eviction_policy: Any,
        is_volatile: bool,
    ) -> TensorHandle:
        return self._load(ptrs, mask.data, other, is_volatile)

    def _load(
        self, ptrs: TensorHandle, mask: Array | None, other: TensorHandle | None, volatile: bool
    ) -> TensorHandle:
        dtype = ptrs.get_element_ty()
        fill = None if other is None else other.data
        loaded = self.memory.load(ptrs.data, mask, element_of(dtype), fill, volatile)
        return TensorHandle(loaded, dtype)

    def create_store(self, ptr: TensorHandle, val: TensorHandle, _0: Any, _1: Any) -> None:
        self._store(ptr, val, None)

    def create_masked_store(
        self,
        ptrs: TensorHandle,
        value: TensorHandle,
        mask: TensorHandle,
        cache_modifier: Any,
        eviction_policy: Any,
    ) -> None:
        self._store(ptrs, value, mask.data)

    def _store(self, ptrs: TensorHandle, value: TensorHandle, mask: Array | None) -> None:
        element = element_of(ptrs.get_element_ty())
        values = value.data.astype(element.storage, copy=False)
        self.memory.store(ptrs.data, values, mask, element)

    def create_atomic_cas(
        self, ptr: TensorHandle, cmp: TensorHandle, val: TensorHandle, sem: Any, scope: Any
    ) -> TensorHandle:
        dtype = ptr.get_element_ty()
        storage = storage_of(dtype)
        expected, wanted = cmp.data.astype(storage), val.data.astype(storage)

        def swap(old: Array, lanes: Array) -> Array:
            new, hoped = _lanes(wanted, ptr.data, lanes), _lanes(expected, ptr.data, lanes)
            return np.where(old == hoped, new, old)

        old = self.memory.atomic(ptr.data, None, element_of(dtype), swap, *ORDERING[sem])
        return TensorHandle(old, dtype)

    def create_atomic_rmw(
        self,
        operation: Any,
        ptr: TensorHandle,
        val: TensorHandle,
        mask: TensorHandle,
        sem: Any,
        scope: Any,
    ) -> TensorHandle:
        if operation not in _UPDATES:
            raise Unsupported(f"atomic_rmw {operation}")
        dtype, update = ptr.get_element_ty(), _UPDATES[operation]
        storage = storage_of(dtype)

        def apply(old: Array, lanes: Array) -> Array:
            operand = _lanes(val.data.astype(storage, copy=False), ptr.data, lanes)
            before, new = TensorHandle(old, dtype), TensorHandle(operand, dtype)
            with np.errstate(all="ignore"):
                return handle_of(update(numbers(before), numbers(new)), dtype).data

        old = self.memory.atomic(ptr.data, mask.data, element_of(dtype), apply, *ORDERING[sem])
        return TensorHandle(old, dtype)

    # block pointers and descriptors

    def create_tensor_pointer_load(
        self,
        ptr: Any,
        boundary_check: Sequence[int],
        padding_option: Any,
        cache_modifier: Any,
        eviction_policy: Any,
        is_volatile: bool,
    ) -> TensorHandle:
        addresses, mask = tile(ptr, [offset.data for offset in ptr.offsets], boundary_check)
        other = None if padding_option is None else padding(padding_option, ptr, addresses.shape)
        pointers = TensorHandle(addresses, ptr.base.dtype.scalar)
        return self._load(pointers, mask if boundary_check else None, other, is_volatile)

    def create_tensor_pointer_store(
        self,
        ptr: Any,
        value: TensorHandle,
        boundary_check: Sequence[int],
        cache_modifier: Any,
        eviction_policy: Any,
    ) -> None:
        addresses, mask = tile(ptr, [offset.data for offset in ptr.offsets], boundary_check)
        pointers = TensorHandle(addresses, ptr.base.dtype.scalar)
        self._store(pointers, value, mask if boundary_check else None)

    def create_descriptor_load(
        self, desc: Any, indices: Sequence[TensorHandle], cache_modifier: Any, eviction_policy: Any
    ) -> TensorHandle:
        addresses, mask = tile(desc, [index.data for index in indices], range(desc.ndim))
        other = padding(desc.padding, desc, addresses.shape)
        return self._load(TensorHandle(addresses, desc.base.dtype.scalar), mask, other, False)

    def create_descriptor_store(
        self, desc: Any, value: TensorHandle, indices: Sequence[TensorHandle]
    ) -> None:
        addresses, mask = tile(desc, [index.data for index in indices], range(desc.ndim))
        self._store(TensorHandle(addresses, desc.base.dtype.scalar), value, mask)

    def create_descriptor_reduce(
        self, kind: Any, desc: Any, value: TensorHandle, indices: Sequence[TensorHandle]
    ) -> None:
        operation = getattr(ir.ATOMIC_OP, kind.name, kind.name)
        addresses, mask = tile(desc, [index.data for index in indices], range(desc.ndim))
        pointers = TensorHandle(addresses, desc.base.dtype.scalar)
        lanes = TensorHandle(mask, tl.int1)
        self.create_atomic_rmw(operation, pointers, value, lanes, ir.MEM_SEMANTIC.RELAXED, None)

    def create_descriptor_gather(
        self, desc: Any, x_offsets: TensorHandle, y_offset: TensorHandle, type: Any
    ) -> TensorHandle:
        addresses, mask = rows(desc, x_offsets.data, y_offset.data)
        other = padding(ir.PADDING_OPTION.PAD_ZERO, desc, addresses.shape)
        return self._load(TensorHandle(addresses, desc.base.dtype.scalar), mask, other, False)

    def create_descriptor_scatter(
        self, desc: Any, value: TensorHandle, x_offsets: TensorHandle, y_offset: TensorHandle
    ) -> None:
        addresses, mask = rows(desc, x_offsets.data, y_offset.data)
        self._store(TensorHandle(addresses, desc.base.dtype.scalar), value, mask)


def _called_operation() -> str:
    """The function of triton.language that a kernel called, seen from inside of it."""
    name, frame = "", sys._getframe(1)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("candidate"):
        if frame.f_code.co_filename == tl.core.__file__ and frame.f_code.co_name != "wrapper":
            name = frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]
    return name


@functools.cache
def element_of(dtype: Any) -> Element:
    """How memory sees a Triton dtype."""
    poison = not_a_number(dtype)
    return Element(poison.dtype, poison, lambda bits: numbers(TensorHandle(bits, dtype)))


def _result(values: Array, dtype: Any) -> TensorHandle:
    """What an operation on `dtype` gives: a comparison gives truth values, the rest is rounded."""
    if values.dtype == np.bool_:
        return TensorHandle(values, tl.int1)
    return handle_of(values, dtype)


def _lanes(values: Array, addresses: Array, lanes: Array) -> Array:
    """The operands of some lanes, flat; a scalar operand serves all of them."""
    return np.broadcast_to(values, addresses.shape).reshape(-1)[lanes]
