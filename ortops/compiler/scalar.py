# SPDX-License-Identifier: MIT
"""Scalar intrinsics for compiled code: pointers, loads and stores with conversion, fused multiply-add.

numba has no float16 or bfloat16 on a CPU. So compiled code stores their elements as uint16 and int16, and computes in
float32. All targets have instructions for fused multiply-add and for float16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ortops.compiler.struct_types import ItemsType, emit_item
from ortops.native.elements import BFLOAT16, DOUBLE, FLOAT, FLOAT16, LANES, Elements, T

MAX_UNROLLED = 8
"""The most iterations of a loop that is specialised for each count (`parallel.for_count`)."""


class LanesType(types.Type):
    """The numba type of a SIMD vector of LANES values of type `scalar`."""

    def __init__(self, scalar: Any) -> None:
        self.scalar = scalar
        super().__init__(name=f"Lanes({scalar})")


def compute_type(element: Any) -> Any:
    """The compute type of an element type: float32 for the 16-bit types, else the element type."""
    return types.float32 if element in (types.uint16, types.int16) else element


def scalar_type(element: Any) -> Any:
    """The compute type of elements or of a vector's lanes."""
    return element.scalar if isinstance(element, LanesType) else compute_type(element)


def _alignment(element: Any) -> int:
    return int(getattr(element, "scalar", element).bitwidth) // 8


def _shaped_like(llvm_type: Any, scalar: Any) -> Any:
    """The scalar type, or a vector of LANES such scalars if `llvm_type` is a vector."""
    return ir.VectorType(scalar, LANES) if isinstance(llvm_type, ir.VectorType) else scalar


def constant(llvm_type: Any, value: float) -> ir.Constant:
    """A constant of a scalar or vector type; a vector has it in all lanes."""
    return ir.Constant(llvm_type, [value] * LANES if isinstance(llvm_type, ir.VectorType) else value)


def emit_load(context: Any, builder: Any, element: Any, pointer: Any, value_type: Any) -> Any:
    """Emit the load of a scalar or vector of type `value_type` from a pointer to elements, converted to the compute type."""
    stored = pointer.type.pointee
    if not isinstance(element, LanesType):
        stored = _shaped_like(context.get_value_type(value_type), stored)
    value = builder.load(builder.bitcast(pointer, stored.as_pointer()), align=_alignment(element))
    if element == types.uint16:
        half = builder.bitcast(value, _shaped_like(value.type, ir.HalfType()))
        return builder.fpext(half, _shaped_like(value.type, ir.FloatType()))
    return _from_bfloat16(builder, value) if element == types.int16 else value


def emit_store(context: Any, builder: Any, element: Any, pointer: Any, value: Any) -> None:
    """Emit the store of a scalar or vector to a pointer to elements, rounded once to their type."""
    if element == types.uint16:
        half = builder.fptrunc(value, _shaped_like(value.type, ir.HalfType()))
        value = builder.bitcast(half, _shaped_like(value.type, ir.IntType(16)))
    elif element == types.int16:
        value = _to_bfloat16(builder, value)
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=_alignment(element))


def _from_bfloat16(builder: Any, bits16: Any) -> Any:
    """Convert a bfloat16's bits to float32."""
    bits = _shaped_like(bits16.type, ir.IntType(32))
    shifted = builder.shl(builder.zext(bits16, bits), constant(bits, 16))
    return builder.bitcast(shifted, _shaped_like(bits16.type, ir.FloatType()))


def _to_bfloat16(builder: Any, value: Any) -> Any:
    """Convert float32 to a bfloat16's bits, rounded to nearest, ties to even."""
    bits = _shaped_like(value.type, ir.IntType(32))
    all_bits = builder.bitcast(value, bits)
    nan = builder.or_(builder.lshr(all_bits, constant(bits, 16)), constant(bits, 0x40))
    is_nan = builder.fcmp_unordered("uno", value, value)
    chosen = builder.select(is_nan, nan, _nearest(builder, all_bits, 16))
    return builder.trunc(chosen, _shaped_like(value.type, ir.IntType(16)))


def _nearest(builder: Any, bits: Any, places: int) -> Any:
    """Shift the last `places` bits out, rounding to nearest, ties to even."""
    llvm_type = bits.type
    odd = builder.and_(builder.lshr(bits, constant(llvm_type, places)), constant(llvm_type, 1))
    below_half = constant(llvm_type, (1 << (places - 1)) - 1)
    return builder.lshr(builder.add(bits, builder.add(odd, below_half)), constant(llvm_type, places))


def is_elements(pointer: Any) -> bool:
    """Whether a numba type is the type of `Elements`."""
    return getattr(pointer, "instance_class", None) is Elements


def emit_address(builder: Any, pointer: Any, value: Any) -> Any:
    """Emit the address in a pointer, in Elements or in an integer."""
    if is_elements(pointer):
        return builder.extract_value(value, 0)
    return value if pointer == types.intp else builder.ptrtoint(value, ir.IntType(64))


def _kind(builder: Any, pointer: Any, value: Any) -> Any:
    """Emit the kind of elements."""
    return builder.extract_value(value, 1) if is_elements(pointer) else ir.IntType(64)(_KINDS[pointer.dtype])


_KINDS = {types.uint16: FLOAT16, types.int16: BFLOAT16, types.float32: FLOAT, types.float64: DOUBLE}


def emit_itemsize(builder: Any, pointer: Any, value: Any) -> Any:
    """Emit the size of a pointer's elements in bytes."""
    int64 = ir.IntType(64)
    if not is_elements(pointer):
        return int64(pointer.dtype.bitwidth // 8)
    kind = builder.extract_value(value, 1)
    is_large = builder.icmp_signed(">=", kind, int64(FLOAT))
    return builder.select(is_large, builder.shl(int64(1), kind), int64(2))


def _elements(context: Any, builder: Any, result: Any, address: Any, kind: Any) -> Any:
    return context.make_tuple(builder, result, [address, kind])


@intrinsic
def _offset(_typing: Any, pointer: Any, count: Any) -> Any:

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        if isinstance(pointer, ItemsType):
            return emit_item(builder, pointer, *args)
        if not is_elements(pointer):
            return builder.gep(args[0], [args[1]])
        size = builder.mul(args[1], emit_itemsize(builder, pointer, args[0]))
        address = builder.add(emit_address(builder, pointer, args[0]), size)
        return _elements(context, builder, pointer, address, _kind(builder, pointer, args[0]))

    return pointer(pointer, types.intp), codegen


if TYPE_CHECKING:

    def offset(pointer: T, count: int) -> T:
        """The pointer plus `count` elements."""
else:
    offset = _offset


def _cast(element: Any) -> Any:
    """An intrinsic that casts a pointer or an integer address to a pointer to `element`."""

    @intrinsic
    def cast(_typing: Any, pointer: Any) -> Any:
        result = types.CPointer(element)

        def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            return builder.inttoptr(emit_address(builder, pointer, args[0]), context.get_value_type(result))

        return result(pointer), codegen

    return cast


byte_pointer, int64_pointer = _cast(types.uint8), _cast(types.int64)
uint32_pointer, float32_pointer, float64_pointer = _cast(types.uint32), _cast(types.float32), _cast(types.float64)


@intrinsic
def compute_pointer(_typing: Any, pointer: Any, like: Any) -> Any:
    """Cast a pointer; `like` points to elements or vectors, whose compute type the result points to."""
    result = like if is_elements(like) else types.CPointer(scalar_type(like.dtype))

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address = emit_address(builder, pointer, args[0])
        if not is_elements(like):
            return builder.inttoptr(address, context.get_value_type(result))
        kind = _kind(builder, like, args[1])
        is_16_bit = builder.icmp_signed("<", kind, kind.type(FLOAT))
        return _elements(context, builder, result, address, builder.select(is_16_bit, kind.type(FLOAT), kind))

    return result(pointer, like), codegen


@intrinsic
def element_pointer(_typing: Any, pointer: Any) -> Any:
    """Cast a pointer to vectors into a pointer to their lanes; leave other pointers unchanged."""
    result = types.CPointer(getattr(pointer.dtype, "scalar", pointer.dtype))

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(result))

    return result(pointer), codegen


@intrinsic
def storage_pointer(_typing: Any, pointer: Any, like: Any) -> Any:
    """Cast a pointer to the type of the pointer `like`."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        address = emit_address(builder, pointer, args[0])
        if is_elements(like):
            return _elements(context, builder, like, address, _kind(builder, like, args[1]))
        return builder.inttoptr(address, context.get_value_type(like))

    return like(pointer, like), codegen


@intrinsic
def itemsize(_typing: Any, pointer: Any) -> Any:
    """The size of a pointer's elements in bytes."""
    return types.intp(pointer), lambda _context, builder, _signature, args: emit_itemsize(builder, pointer, args[0])


@intrinsic
def address_of(_typing: Any, pointer: Any) -> Any:
    """A pointer as an integer."""
    return types.intp(pointer), lambda _context, builder, _signature, args: emit_address(builder, pointer, args[0])


def _is_double(builder: Any, pointer: Any, value: Any) -> Any:
    return builder.icmp_signed("==", _kind(builder, pointer, value), ir.IntType(64)(DOUBLE))


def _typed(builder: Any, pointer: Any, value: Any, at: Any, real: Any) -> Any:
    base = builder.inttoptr(emit_address(builder, pointer, value), real.as_pointer())
    return builder.gep(base, [at])


@intrinsic
def value_at(_typing: Any, pointer: Any, at: Any) -> Any:
    """Load number `at` from Elements of a compute type, converted to float64."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        result = cgutils.alloca_once(builder, ir.DoubleType())
        with builder.if_else(_is_double(builder, pointer, args[0])) as (double, single):
            with double:
                builder.store(builder.load(_typed(builder, pointer, args[0], args[1], ir.DoubleType())), result)
            with single:
                value = builder.load(_typed(builder, pointer, args[0], args[1], ir.FloatType()))
                builder.store(builder.fpext(value, ir.DoubleType()), result)
        return builder.load(result)

    return types.float64(pointer, types.intp), codegen


@intrinsic
def kind_of(_typing: Any, pointer: Any) -> Any:
    """The type of a pointer's elements."""
    return types.intp(pointer), lambda _context, builder, _signature, args: _kind(builder, pointer, args[0])


@intrinsic
def number_at(_typing: Any, pointer: Any, at: Any) -> Any:
    """Load number `at` from Elements of any type, converted to float64."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        result = cgutils.alloca_once(builder, ir.DoubleType())
        end = builder.append_basic_block()
        switch = builder.switch(_kind(builder, pointer, args[0]), end)
        for element, kind in _KINDS.items():
            block = builder.append_basic_block()
            switch.add_case(kind, block)
            builder.position_at_end(block)
            place = _typed(builder, pointer, args[0], args[1], context.get_value_type(element))
            value = emit_load(context, builder, element, place, compute_type(element))
            builder.store(value if kind == DOUBLE else builder.fpext(value, ir.DoubleType()), result)
            builder.branch(end)
        builder.position_at_end(end)
        return builder.load(result)

    return types.float64(pointer, types.intp), codegen


@intrinsic
def set_value(_typing: Any, pointer: Any, at: Any, value: Any) -> Any:
    """Store a float64 as number `at` in Elements of a compute type, rounded once."""

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        with builder.if_else(_is_double(builder, pointer, args[0])) as (double, single):
            with double:
                builder.store(args[2], _typed(builder, pointer, args[0], args[1], ir.DoubleType()))
            with single:
                value = builder.fptrunc(args[2], ir.FloatType())
                builder.store(value, _typed(builder, pointer, args[0], args[1], ir.FloatType()))
        return context.get_dummy_value()

    return types.void(pointer, types.intp, types.float64), codegen


@intrinsic
def load(_typing: Any, pointer: Any, at: Any) -> Any:
    """Load element `at`, converted to its compute type."""
    scalar = compute_type(pointer.dtype)

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return emit_load(context, builder, pointer.dtype, builder.gep(args[0], [args[1]]), scalar)

    return scalar(pointer, types.intp), codegen


@intrinsic
def store(_typing: Any, pointer: Any, at: Any, value: Any) -> Any:
    """Store a value of the compute type as element `at`, rounded once to the element type."""
    scalar = compute_type(pointer.dtype)

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        emit_store(context, builder, pointer.dtype, builder.gep(args[0], [args[1]]), args[2])
        return context.get_dummy_value()

    return types.void(pointer, types.intp, scalar), codegen


@intrinsic
def cast_like(_typing: Any, pointer: Any, value: Any) -> Any:
    """Cast a number to the compute type of a pointer's elements; fill all lanes if these are vectors."""
    value_type = compute_type(pointer.dtype)

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        is_vector = isinstance(value_type, LanesType)
        return emit_splat(builder, context.get_value_type(value_type), args[1]) if is_vector else args[1]

    return value_type(pointer, scalar_type(pointer.dtype)), codegen


@intrinsic
def lane_count(_typing: Any, pointer: Any) -> Any:
    """LANES for a pointer to vectors, else 1. It is a constant, so that LLVM removes the other case's code."""
    count = LANES if isinstance(pointer.dtype, LanesType) else 1
    return types.intp(pointer), lambda _context, _builder, _signature, _args: ir.IntType(64)(count)


@intrinsic
def local(_typing: Any, like: Any) -> Any:
    """Stack memory for MAX_UNROLLED values of `like`'s type; LLVM keeps them in registers in unrolled loops."""

    def codegen(context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        return cgutils.alloca_once(builder, context.get_value_type(like), size=MAX_UNROLLED)

    return types.CPointer(like)(like), codegen


@intrinsic(prefer_literal=True)
def local_words(_typing: Any, count: Any) -> Any:
    """Stack memory for a constant number of int64s."""
    size = count.literal_value

    def codegen(_context: Any, builder: Any, _signature: Any, _args: Any) -> Any:
        return cgutils.alloca_once(builder, ir.IntType(64), size=size)

    # By the literal: numba finds `codegen` again by the types of the arguments.
    return types.CPointer(types.int64)(count), codegen


@intrinsic
def fma(_typing: Any, a: Any, b: Any, c: Any) -> Any:
    """a*b + c with one rounding.

    b and c are both scalars or both vectors; a scalar `a` fills all lanes. Every sum of products uses this function, and
    LLVM must not contract other operations. So a channel gets the same bits alone and in a vector.
    """
    scalar_type = b.scalar if isinstance(b, LanesType) else b
    factor = a if isinstance(a, LanesType) else scalar_type

    def codegen(context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        first, second, third = args
        if first.type != second.type:
            first = emit_splat(builder, second.type, first)
        return _emit_intrinsic(builder, "fma", first, second, third)

    return b(factor, b, b), codegen


def _emit_intrinsic(builder: Any, name: str, *args: Any) -> Any:
    """Emit a call of LLVM's math intrinsic on scalars or vectors."""
    value_type = args[0].type
    is_vector = isinstance(value_type, ir.VectorType)
    scalar_type = value_type.element if is_vector else value_type
    suffix = f"{f'v{LANES}' if is_vector else ''}f{64 if isinstance(scalar_type, ir.DoubleType) else 32}"
    function = ir.FunctionType(value_type, [value_type] * len(args))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}"), args)


def emit_splat(builder: Any, vector: Any, value: Any) -> Any:
    """Emit a vector with the value in all lanes."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.IntType(32)(0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


@intrinsic
def ceil(_typing: Any, value: Any) -> Any:
    """The smallest integer that is not less than a float64, as a float64."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _emit_intrinsic(builder, "ceil", *args)

    return types.float64(types.float64), codegen


cos = types.ExternalFunction("cos", types.float64(types.float64))
sin = types.ExternalFunction("sin", types.float64(types.float64))
"""The C library's functions."""


def _select_by(integer: str, float_: str) -> Any:
    @intrinsic
    def select(_typing: Any, a: Any, b: Any) -> Any:
        value_type = types.intp if isinstance(a, types.Integer) and isinstance(b, types.Integer) else types.float64

        def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            is_integer = value_type == types.intp
            first = builder.icmp_signed(integer, *args) if is_integer else builder.fcmp_ordered(float_, *args)
            return builder.select(first, *args)

        return value_type(value_type, value_type), codegen

    return select


minimum, maximum = _select_by("<", "<"), _select_by(">", ">")
"""The smaller and the larger of two integers or float64s; the second if either is NaN."""
