"""Emit conversions between float32 and the bit patterns of float16 and bfloat16, for a scalar or a vector of LANES.

The results do not change if the CPU flushes float32 subnormals to 0, which ONNX Runtime can request.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from ortops.native.elements import LANES


def shaped_like(llvm_type: Any, scalar: Any) -> Any:
    """The scalar type, or a vector of LANES such scalars if `llvm_type` is a vector."""
    return ir.VectorType(scalar, LANES) if isinstance(llvm_type, ir.VectorType) else scalar


def constant(llvm_type: Any, value: float) -> ir.Constant:
    """A constant of a scalar or vector type; a vector has it in all lanes."""
    return ir.Constant(llvm_type, [value] * LANES if isinstance(llvm_type, ir.VectorType) else value)


def from_float16(builder: Any, bits16: Any, has_instruction: bool) -> Any:
    """Convert a float16's bits to float32."""
    floats, bits = shaped_like(bits16.type, ir.FloatType()), shaped_like(bits16.type, ir.IntType(32))
    if has_instruction:
        return builder.fpext(builder.bitcast(bits16, shaped_like(bits16.type, ir.HalfType())), floats)
    wide = builder.zext(bits16, bits)
    magnitude = builder.and_(wide, constant(bits, 0x7FFF))
    sign = builder.shl(builder.xor(wide, magnitude), constant(bits, 16))
    shifted = builder.shl(magnitude, constant(bits, 13))
    normal = builder.add(shifted, constant(bits, (127 - 15) << 23))
    not_finite = builder.or_(shifted, constant(bits, 0x7F800000))
    subnormal = builder.fmul(builder.uitofp(magnitude, floats), constant(floats, 2.0**-24))
    chosen = builder.select(builder.icmp_unsigned("<", magnitude, constant(bits, 0x7C00)), normal, not_finite)
    is_subnormal = builder.icmp_unsigned("<", magnitude, constant(bits, 0x0400))
    chosen = builder.select(is_subnormal, builder.bitcast(subnormal, bits), chosen)
    return builder.bitcast(builder.or_(chosen, sign), floats)


def to_float16(builder: Any, value: Any, has_instruction: bool) -> Any:
    """Convert float32 to a float16's bits: rounded to nearest, ties to even; infinite beyond float16's range."""
    bits16, bits = shaped_like(value.type, ir.IntType(16)), shaped_like(value.type, ir.IntType(32))
    if has_instruction:
        return builder.bitcast(builder.fptrunc(value, shaped_like(value.type, ir.HalfType())), bits16)
    all_bits = builder.bitcast(value, bits)
    magnitude = builder.and_(all_bits, constant(bits, 0x7FFFFFFF))
    sign = builder.lshr(builder.xor(all_bits, magnitude), constant(bits, 16))
    normal = builder.sub(_nearest(builder, magnitude, 13), constant(bits, (127 - 15) << 10))
    # The last bit of a float32 in [0.5, 1) is worth 2**-24, as in a subnormal float16: adding 0.5 rounds to it.
    half = constant(value.type, 0.5)
    sum_ = builder.fadd(builder.bitcast(magnitude, value.type), half)
    subnormal = builder.sub(builder.bitcast(sum_, bits), builder.bitcast(half, bits))
    nan = builder.or_(builder.lshr(magnitude, constant(bits, 13)), constant(bits, 0x7E00))
    chosen = constant(bits, 0x7C00)
    for exponent, smaller in ((16, normal), (-14, subnormal)):
        is_below = builder.icmp_unsigned("<", magnitude, constant(bits, (127 + exponent) << 23))
        chosen = builder.select(is_below, smaller, chosen)
    chosen = builder.select(builder.fcmp_unordered("uno", value, value), nan, chosen)
    return builder.trunc(builder.or_(builder.and_(chosen, constant(bits, 0x7FFF)), sign), bits16)


def from_bfloat16(builder: Any, bits16: Any) -> Any:
    """Convert a bfloat16's bits to float32."""
    bits = shaped_like(bits16.type, ir.IntType(32))
    shifted = builder.shl(builder.zext(bits16, bits), constant(bits, 16))
    return builder.bitcast(shifted, shaped_like(bits16.type, ir.FloatType()))


def to_bfloat16(builder: Any, value: Any) -> Any:
    """Convert float32 to a bfloat16's bits, rounded to nearest, ties to even."""
    bits = shaped_like(value.type, ir.IntType(32))
    all_bits = builder.bitcast(value, bits)
    nan = builder.or_(builder.lshr(all_bits, constant(bits, 16)), constant(bits, 0x40))
    is_nan = builder.fcmp_unordered("uno", value, value)
    chosen = builder.select(is_nan, nan, _nearest(builder, all_bits, 16))
    return builder.trunc(chosen, shaped_like(value.type, ir.IntType(16)))


def _nearest(builder: Any, bits: Any, places: int) -> Any:
    """Shift the last `places` bits out, rounding to nearest, ties to even."""
    llvm_type = bits.type
    odd = builder.and_(builder.lshr(bits, constant(llvm_type, places)), constant(llvm_type, 1))
    below_half = constant(llvm_type, (1 << (places - 1)) - 1)
    return builder.lshr(builder.add(bits, builder.add(odd, below_half)), constant(llvm_type, places))
