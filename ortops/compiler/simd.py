# SPDX-License-Identifier: MIT
"""SIMD intrinsics for compiled code on vectors of LANES values, which LLVM splits to fit the CPU's registers.

In scalar loops LLVM keeps sums in memory if arrays might overlap. Vectors of this type stay in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

from ortops.compiler.scalar import (
    LanesType,
    compute_type,
    constant,
    emit_address,
    emit_itemsize,
    emit_load,
    emit_splat,
    emit_store,
)
from ortops.native.elements import CACHE_LINE, LANES

_INT32 = ir.IntType(32)


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        super().__init__(manager, lanes, _vector(lanes.scalar))


def _vector(scalar: Any) -> ir.VectorType:
    return ir.VectorType(ir.DoubleType() if scalar == types.float64 else ir.FloatType(), LANES)


@intrinsic
def load_lanes(_typing: Any, pointer: Any, at: Any) -> Any:
    """Load LANES elements from element `at` on, converted to their compute type."""
    lanes = LanesType(compute_type(pointer.dtype))

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit_load(context, builder, pointer.dtype, builder.gep(args[0], [args[1]]), lanes)

    return lanes(pointer, types.intp), codegen


@intrinsic
def store_lanes(_typing: Any, pointer: Any, at: Any, lanes: Any) -> Any:
    """Store a vector as the LANES elements from `at` on, each rounded once."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        emit_store(context, builder, pointer.dtype, builder.gep(args[0], [args[1]]), args[2])
        return context.get_dummy_value()

    return types.void(pointer, types.intp, lanes), codegen


@intrinsic
def splat(_typing: Any, pointer: Any, value: Any) -> Any:
    """A vector with the value in all lanes; its type is the compute type of the pointer's elements."""
    lanes = LanesType(compute_type(pointer.dtype))

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit_splat(builder, _vector(lanes.scalar), args[1])

    return lanes(pointer, lanes.scalar), codegen


@intrinsic
def multiply(_typing: Any, factor: Any, value: Any) -> Any:
    """The product of a scalar and a value, or of a scalar and each lane of a vector."""
    scalar = value.scalar if isinstance(value, LanesType) else value

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        is_vector = isinstance(value, LanesType)
        return builder.fmul(emit_splat(builder, args[1].type, args[0]) if is_vector else args[0], args[1])

    return value(scalar, value), codegen


@intrinsic
def add(_typing: Any, first: Any, second: Any) -> Any:
    """The sum of two values or vectors."""
    return first(first, second), lambda _context, builder, _signature, args: builder.fadd(*args)


@intrinsic
def widen(_typing: Any, value: Any) -> Any:
    """A value or a vector converted to float64."""
    is_vector = isinstance(value, LanesType)
    result = LanesType(types.float64) if is_vector else types.float64
    wide = _vector(types.float64) if is_vector else ir.DoubleType()
    return result(value), lambda _context, builder, _signature, args: _widen(builder, args[0], wide)


def _widen(builder: Any, value: Any, wide: Any) -> Any:
    return value if value.type == wide else builder.fpext(value, wide)


@intrinsic
def nan_max(_typing: Any, first: Any, second: Any) -> Any:
    """The larger value, in each lane of a vector; NaN if either is NaN."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        a, b = args
        # "And" becomes a masked comparison; "or" would cost another instruction. Measured: 93 % of the time on P4.
        leads = builder.and_(builder.fcmp_unordered("<", a, b), builder.fcmp_ordered("ord", a, a))
        return builder.select(leads, b, a)

    return first(first, second), codegen


@intrinsic
def is_nan(_typing: Any, value: Any) -> Any:
    """Whether a value is NaN; of a vector, whether one of its lanes is."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        are_nan = builder.fcmp_unordered("uno", *args, *args)
        if isinstance(value, LanesType):
            are_nan = builder.icmp_unsigned("!=", builder.bitcast(are_nan, ir.IntType(LANES)), ir.IntType(LANES)(0))
        return are_nan

    return types.boolean(value), codegen


@intrinsic
def larger(_typing: Any, first: Any, second: Any) -> Any:
    """The larger value, in each lane; the second if either is NaN. It takes one instruction, `nan_max` three."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", *args), *args)

    return first(first, second), codegen


@intrinsic
def select_new_max(_typing: Any, value: Any, best: Any, new: Any, old: Any) -> Any:
    """In each lane, `new` if `value` replaces the maximum `best`, else `old`.

    The first of equal values and the first NaN stay, as in numpy.argmax.
    """

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        value, best, *choices = args
        leads = builder.and_(builder.fcmp_unordered(">", value, best), builder.fcmp_ordered("ord", best, best))
        return builder.select(leads, *choices)

    return new(value, best, new, old), codegen


@intrinsic
def horizontal_sum(_typing: Any, lanes: Any) -> Any:
    """The sum of all lanes in float64, by halves: lane i and i + LANES/2, then quarters, and so on."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        value, half = _widen(builder, args[0], _vector(types.float64)), LANES // 2
        while half:
            unused = ir.Constant(value.type, ir.Undefined)
            places = [ir.Constant(ir.VectorType(_INT32, half), list(range(k, k + half))) for k in (0, half)]
            value = builder.fadd(*(builder.shuffle_vector(value, unused, place) for place in places))
            half //= 2
        return builder.extract_element(value, _INT32(0))

    return types.float64(lanes), codegen


@intrinsic
def transpose(_typing: Any, source: Any, stride: Any, rows: Any, target: Any, target_stride: Any, columns: Any) -> Any:
    """Store the transpose of a LANES x LANES block.

    Row k of the source is at source + k*stride; column k is stored at target + k*target_stride. Rows from number `rows` on
    count as 0, and columns from number `columns` on are not stored.
    """

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        first, stride_value, rows_value, base, target_stride_value, columns_value = args
        index, lanes = rows_value.type, LanesType(compute_type(source.dtype))
        lines = []
        for k in range(LANES):
            exists = builder.icmp_signed("<", index(k), rows_value)
            # A missing row loads the first row and discards it.
            place = builder.select(exists, builder.mul(stride_value, index(k)), index(0))
            line = emit_load(context, builder, source.dtype, builder.gep(first, [place]), lanes)
            lines.append(builder.select(exists, line, constant(line.type, 0.0)))
        for k, line in enumerate(_transposed(builder, lines)):
            exists = builder.icmp_signed("<", index(k), columns_value)
            with cgutils.if_likely(builder, exists):
                pointer = builder.gep(base, [builder.mul(target_stride_value, index(k))])
                emit_store(context, builder, target.dtype, pointer, line)
        return context.get_dummy_value()

    intp = types.intp
    return types.void(source, intp, intp, target, intp, intp), codegen


def _transposed(builder: Any, lines: list[Any]) -> list[Any]:
    """Transpose by exchanging halves of pairs of lines, then quarters, and so on."""
    places = ir.VectorType(_INT32, LANES)
    half = LANES // 2
    while half:
        upper = [k if not k & half else LANES + k - half for k in range(LANES)]
        lower = [k + half if not k & half else LANES + k for k in range(LANES)]
        exchanged = list(lines)
        for k in range(LANES):
            if not k & half:
                a, b = lines[k], lines[k + half]
                exchanged[k] = builder.shuffle_vector(a, b, ir.Constant(places, upper))
                exchanged[k + half] = builder.shuffle_vector(a, b, ir.Constant(places, lower))
        lines, half = exchanged, half // 2
    return lines


@intrinsic
def stream_cache_line(_typing: Any, source: Any, target: Any) -> Any:
    """Copy a cache line by a non-temporal store; the target must be aligned to a cache line. Call `fence` afterwards."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        line = ir.VectorType(_INT32, CACHE_LINE // 4)
        value = builder.load(builder.bitcast(args[0], line.as_pointer()), align=1)
        store = builder.store(value, builder.bitcast(args[1], line.as_pointer()), align=CACHE_LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([_INT32(1)]))
        return context.get_dummy_value()

    return types.void(source, target), codegen


@intrinsic
def fence(_typing: Any) -> Any:
    """Make non-temporal stores visible to other threads before the next store of this thread."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), codegen


def _prefetch(is_written: int) -> Any:
    @intrinsic
    def prefetch(_typing: Any, pointer: Any, count: Any) -> Any:
        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            byte = ir.IntType(8).as_pointer()
            function_type = ir.FunctionType(ir.VoidType(), [byte, _INT32, _INT32, _INT32])
            function = cgutils.get_or_insert_function(builder.module, function_type, "llvm.prefetch.p0i8")
            base = builder.inttoptr(emit_address(builder, pointer, args[0]), byte)
            stop = builder.mul(args[1], emit_itemsize(builder, pointer, args[0]))
            zero, step = stop.type(0), stop.type(CACHE_LINE)
            with cgutils.for_range_slice(builder, zero, stop, step, stop.type) as (index, _):
                where = builder.gep(base, [index])
                builder.call(function, [where, _INT32(is_written), _INT32(3), _INT32(1)])
            return context.get_dummy_value()

        return types.void(pointer, types.intp), codegen

    return prefetch


prefetch_to_read, prefetch_to_write = _prefetch(0), _prefetch(1)
"""Prefetch `count` elements.

A kernel reads a few cache lines of sixteen planes, then writes a few lines of sixteen others: too few for the hardware
prefetcher.
Measured: with 1024 channels, prefetching a RoI's output before its sums reduces the time of the forward operator to 60 %.
X is not: a call of one RoI takes 12 % longer if windows are prefetched a panel ahead, and no less if X is in no cache.
"""
