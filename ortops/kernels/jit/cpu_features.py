"""Find out whether the target CPU has instructions for fused multiply-add and for float16.

Without an instruction, LLVM calls a library function: `fmaf`, which is slow, or a float16 conversion, which the process may
not have. LLVM ends the process if a function is missing.
"""

from __future__ import annotations

import functools
from typing import Any

from llvmlite import binding as llvm


def has_fma(context: Any) -> bool:
    """Whether numba's target CPU has a fused multiply-add for float32."""
    return _fuses(context.codegen()._tm)  # noqa: SLF001 - the target of numba's own code


def has_float16(context: Any) -> bool:
    """Whether numba's target CPU converts between float32 and float16 by instructions."""
    return _converts(context.codegen()._tm)  # noqa: SLF001


def has_both(target: Any) -> bool:
    """Whether a target machine has both, as the bitcode of a wheel needs."""
    return _fuses(target) and _converts(target)


def _fuses(target: Any) -> bool:
    return "fmaf" not in _assembly(
        target,
        """
        declare float @llvm.fma.f32(float, float, float)
        define float @probe(float %a) {
          %sum = call float @llvm.fma.f32(float %a, float %a, float %a)
          ret float %sum
        }
        """,
    )


def _converts(target: Any) -> bool:
    assembly = _assembly(
        target,
        """
        define float @probe(float %a) {
          %half = fptrunc float %a to half
          %back = fpext half %half to float
          ret float %back
        }
        """,
    )
    # __extendhfsf2, but __gnu_h2f_ieee on 32-bit ARM.
    return not any(name in assembly for name in ("hfsf", "h2f"))


@functools.cache
def _assembly(target: Any, module: str) -> str:
    text: str = target.emit_assembly(llvm.parse_assembly(module))
    return text
