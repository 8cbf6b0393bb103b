# SPDX-License-Identifier: MIT
"""Emit object files from LLVM bitcode, load them into this process, and query the processor's features, without numba.

On processors without fused multiply-add, LLVM calls `fmaf`, which is slow. On processors without float16 conversions, it
calls functions that the process may not have.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from typing import Any, NamedTuple

from llvmlite import binding as llvm

from ortops.memory import keep_forever


class Source(NamedTuple):
    """A C function to compile.

    Args:
        module: the module below `ortops` that defines the function.
        function: the function's name.
        element: the element type for which it is specialised if it has parameters that point to elements, else "".
    """

    module: str
    function: str
    element: str

    @property
    def name(self) -> str:
        """The function's name in the cache."""
        return f"{self.module}.{self.function}"


SYMBOL = "ortops_kernel"
"""The symbol of the kernel in every object file."""

PORTABLE = dict.fromkeys(("x86_64", "AMD64"), ("x86-64-v3", "+avx2,+bmi2,+f16c,+fma"))
"""The processor and its features that bitcode is made for, where old processors lack instructions that it needs."""


def portable_machine() -> Any:
    """The target machine that bitcode is made for."""
    _initialize()
    cpu, features = PORTABLE.get(platform.machine(), ("", ""))
    return llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(cpu, features, opt=3)


def load(code: bytes) -> int:
    """Load an object file and return the address of its kernel, valid until the process ends.

    Raises:
        RuntimeError: LLVM rejects the file.
    """
    _initialize()
    # Every file has its own engine, since all kernels have the same symbol.
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)  # the engine takes ownership of it
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    keep_forever(engine)
    address: int = engine.get_function_address(SYMBOL)
    if not address:
        raise RuntimeError(f"an object file has no function {SYMBOL}")
    return address


@functools.cache
def machine_of(triple: str, cpu: str) -> Any:
    """LLVM's target machine of a processor, for code of libraries. LLVM ends the process if there is no such processor."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(triple).create_target_machine(cpu, opt=3, reloc="pic", codemodel="default")


def emit_for(triple: str, cpu: str, module: Any) -> bytes:
    """The object file of a module for a processor."""
    machine = machine_of(triple, cpu)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    code: bytes = machine.emit_object(module)
    return code


def emit_function(triple: str, cpu: str, symbol: str, bitcode: bytes) -> bytes:
    """The object file of a function for a processor, in which the function alone has a symbol."""
    module = llvm.parse_bitcode(bitcode)
    for value in (*module.functions, *module.global_variables):
        if not value.is_declaration and value.name != SYMBOL:
            value.linkage = "internal"
    function = module.get_function(SYMBOL)
    function.name, function.visibility = symbol, "hidden"
    return emit_for(triple, cpu, module)


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    if sys.platform == "win32":  # no DLL of the C library exports this function
        llvm.add_symbol("snprintf", ctypes.cast(ctypes.pythonapi.PyOS_snprintf, ctypes.c_void_p).value)


def processor() -> tuple[str, str, str]:
    """The target triple, the CPU's name and its features; the machine code depends on them."""
    _initialize()
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()


def has_fma(target: Any) -> bool:
    """Whether a target machine has a fused multiply-add for float32."""
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


def has_float16(target: Any) -> bool:
    """Whether a target machine has instructions that convert between float32 and float16."""
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
    # The functions are called __extendhfsf2, but __gnu_h2f_ieee on 32-bit ARM.
    return not any(name in assembly for name in ("hfsf", "h2f"))


@functools.cache
def _assembly(target: Any, module: str) -> str:
    text: str = target.emit_assembly(llvm.parse_assembly(module))
    return text
