"""LANES numbers as one value of compiled code: a vector of LLVM's, whatever registers the CPU has for it.

A panel (`panels.py`) is a flat array of such groups. Loops over single numbers leave it to LLVM to keep sums in registers,
which it does not where arrays might overlap; values of this type are registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.extending import intrinsic, register_model

LANES = 16
"""Numbers in a group: one AVX-512 vector of float32."""

_INT32 = ir.IntType(32)


class LanesType(types.Type):
    """LANES numbers of the type `number`."""

    def __init__(self, number: Any) -> None:
        self.number = number
        super().__init__(name=f"Lanes({number})")


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: LanesType) -> None:
        super().__init__(manager, lanes, _vector(lanes.number))


def _vector(number: Any) -> ir.VectorType:
    return ir.VectorType(ir.DoubleType() if number == types.float64 else ir.FloatType(), LANES)


def _number(element: Any) -> Any:
    """The type in which an element of an array counts."""
    return types.float32 if element in (types.uint16, types.int16) else element


def _same(vector: Any, value: Any) -> ir.Constant:
    """The constant whose lanes all have this value."""
    return ir.Constant(vector, [value] * LANES)


def _read(builder: Any, element: Any, pointer: Any) -> Any:
    """LANES elements from a pointer on as numbers."""
    stored = pointer.type.pointee
    vector = ir.VectorType(stored, LANES)
    value = builder.load(builder.bitcast(pointer, vector.as_pointer()), align=_size(element))
    if element == types.uint16:
        return builder.fpext(builder.bitcast(value, ir.VectorType(ir.HalfType(), LANES)), _vector(types.float32))
    if element == types.int16:
        words = ir.VectorType(_INT32, LANES)
        bits = builder.shl(builder.zext(value, words), _same(words, 16))
        return builder.bitcast(bits, _vector(types.float32))
    return value


def _write(builder: Any, element: Any, pointer: Any, value: Any) -> None:
    """Round LANES numbers once to the element's type and store them from a pointer on."""
    if element == types.uint16:
        halves = builder.fptrunc(value, ir.VectorType(ir.HalfType(), LANES))
        value = builder.bitcast(halves, ir.VectorType(ir.IntType(16), LANES))
    elif element == types.int16:
        value = _to_bfloat16(builder, value)
    builder.store(value, builder.bitcast(pointer, value.type.as_pointer()), align=_size(element))


def _to_bfloat16(builder: Any, value: Any) -> Any:
    """The upper halves of float32s, rounded to nearest even; as `element.put`."""
    words = ir.VectorType(_INT32, LANES)
    bits = builder.bitcast(value, words)
    upper = builder.lshr(bits, _same(words, 16))
    odd = builder.and_(upper, _same(words, 1))
    rounded = builder.lshr(builder.add(bits, builder.add(odd, _same(words, 0x7FFF))), _same(words, 16))
    is_nan = builder.fcmp_unordered("uno", value, value)
    chosen = builder.select(is_nan, builder.or_(upper, _same(words, 0x40)), rounded)
    return builder.trunc(chosen, ir.VectorType(ir.IntType(16), LANES))


def _size(element: Any) -> int:
    return int(element.bitwidth) // 8


def _pointer(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [index])


@intrinsic
def load(_typing: Any, array: Any, at: Any) -> Any:
    """The numbers from element `at` of a flat array on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args)
        return _read(builder, array.dtype, pointer)

    return LanesType(_number(array.dtype))(array, types.intp), codegen


@intrinsic
def store(_typing: Any, array: Any, at: Any, lanes: Any) -> Any:
    """Store numbers from element `at` of a flat array on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args[:2])
        _write(builder, array.dtype, pointer, args[2])
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), codegen


@intrinsic
def zeros(_typing: Any, array: Any) -> Any:
    """Zeros of the type in which the elements of an array count."""
    lanes = LanesType(_number(array.dtype))
    return lanes(array), lambda _context, _builder, _signature, _args: _same(_vector(lanes.number), 0.0)


def _splat(builder: Any, vector: Any, number: Any) -> Any:
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), number, _INT32(0))
    mask = ir.Constant(ir.VectorType(_INT32, LANES), [0] * LANES)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), mask)


@intrinsic
def same(_typing: Any, array: Any, number: Any) -> Any:
    """One number in all lanes, in the type in which the elements of an array count."""
    lanes = LanesType(_number(array.dtype))

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return _splat(builder, _vector(lanes.number), args[1])

    return lanes(array, lanes.number), codegen


@intrinsic
def plus(_typing: Any, total: Any, weight: Any, lanes: Any) -> Any:
    """The sum total + weight*lanes, rounded once where the CPU can; weight is one number, or numbers of their own."""
    weight_type = lanes if isinstance(weight, LanesType) else lanes.number

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        start, factor, value = args
        if weight_type is not lanes:
            factor = _splat(builder, value.type, factor)
        return builder.fadd(start, builder.fmul(factor, value, flags=("contract",)), flags=("contract",))

    return total(total, weight_type, lanes), codegen


@intrinsic
def times(_typing: Any, weight: Any, lanes: Any) -> Any:
    """The product of one number and each of lanes."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.fmul(_splat(builder, args[1].type, args[0]), args[1], flags=("contract",))

    return lanes(lanes.number, lanes), codegen


@intrinsic
def larger(_typing: Any, first: Any, second: Any) -> Any:
    """The larger in each lane, NaN above all."""

    def codegen(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        a, b = args
        keeps = builder.fcmp_ordered(">=", a, b)
        is_nan = builder.fcmp_unordered("uno", a, a)
        return builder.select(builder.or_(keeps, is_nan), a, b)

    return first(first, second), codegen


@intrinsic
def add_doubles(_typing: Any, doubles: Any, at: Any, lanes: Any) -> Any:
    """Add numbers, each made float64, to those from element `at` of a flat float64 array on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        pointer = _pointer(context, builder, signature.args[0], *args[:2])
        vector = _vector(types.float64)
        value = args[2] if args[2].type == vector else builder.fpext(args[2], vector)
        total = builder.fadd(_read(builder, types.float64, pointer), value)
        _write(builder, types.float64, pointer, total)
        return context.get_dummy_value()

    return types.void(doubles, types.intp, lanes), codegen


@intrinsic
def transpose(
    _typing: Any, source: Any, at: Any, stride: Any, rows: Any, target: Any, to: Any, target_stride: Any, columns: Any
) -> Any:
    """Store the transpose of a square of LANES x LANES elements.

    Row k begins at element at + k*stride of the flat array source, column k at to + k*target_stride of target. Of the rows
    those from `rows` on are read as 0, of the columns those from `columns` on are not stored.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        _, at_value, stride_value, rows_value, _, to_value, target_stride_value, columns_value = args
        first = _pointer(context, builder, signature.args[0], args[0], at_value)
        lines = []
        for k in range(LANES):
            exists = builder.icmp_signed("<", at_value.type(k), rows_value)
            # A row that is not there is read from the first one's place and then forgotten.
            offset = builder.select(exists, builder.mul(stride_value, at_value.type(k)), at_value.type(0))
            line = _read(builder, source.dtype, builder.gep(first, [offset]))
            lines.append(builder.select(exists, line, _same(line.type, 0.0)))
        lines = _transposed(builder, lines)
        base = _pointer(context, builder, signature.args[4], args[4], to_value)
        for k, line in enumerate(lines):
            exists = builder.icmp_signed("<", to_value.type(k), columns_value)
            with cgutils.if_likely(builder, exists):
                pointer = builder.gep(base, [builder.mul(target_stride_value, to_value.type(k))])
                _write(builder, target.dtype, pointer, line)
        return context.get_dummy_value()

    intp = types.intp
    return types.void(source, intp, intp, intp, target, intp, intp, intp), codegen


def _transposed(builder: Any, lines: list[Any]) -> list[Any]:
    """Exchange halves of pairs of lines, then quarters, and so on."""
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
