# SPDX-License-Identifier: MIT
"""Object files of a library: of compiled functions, of constants, and of the functions that hosts call."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import binding as llvm
from llvmlite import ir

from ortops.compiler import cache, machine_code
from ortops.compiler.machine_code import Source, emit_for, emit_function, has_float16, has_fma, machine_of
from ortops.library.exports import entry_of
from ortops.library.targets import Target
from ortops.native.constants import Constant, FunctionOf, Several, SharedWord, cells, functions, size_of
from ortops.native.constants import Target as Place

if TYPE_CHECKING:
    from ortops.custom.compiled import CompiledOperator


class Export(NamedTuple):
    """A function of the library that hosts call.

    name: its symbol.
    constant: the constant whose address the function returns, or that `function` gets.
    function: a C function (options, api_base, constant) -> status, if hosts call the export with OrtSessionOptions* and
        OrtApiBase* for an OrtStatus*.
    """

    name: str
    constant: Constant
    function: FunctionOf | None = None


class UserFunction(NamedTuple):
    """The compiled function of a user's operator.

    operator: the operator.
    kinds: the element types of its inputs and outputs, by their names.
    of_shapes: whether it is what infers shapes, in place of the function itself.
    """

    operator: CompiledOperator
    kinds: tuple[tuple[str, str], ...]
    of_shapes: bool = False

    @property
    def symbol(self) -> str:
        """A part of its symbol, of its own in a library."""
        return ".".join((self.operator.label, *(kind for _, kind in self.kinds), *["shapes"] * self.of_shapes))

    def bitcode(self) -> bytes:
        """Its bitcode; see `CompiledOperator.bitcode`."""
        return self.operator.bitcode(dict(self.kinds), of_shapes=self.of_shapes)


def _source_of(function: FunctionOf) -> Source | UserFunction:
    """What there is to compile of a function."""
    if isinstance(function.function, UserFunction):
        return function.function
    python_function = function.function.py_func
    module = python_function.__module__.removeprefix("ortops.")
    return Source(module, python_function.__name__, function.element)


def sources_of(exports: Sequence[Export]) -> list[Source | UserFunction]:
    """What there is to compile of the exports and of all functions in their constants."""
    registering = [export.function for export in exports if export.function]
    others = functions(export.constant for export in exports)
    return list(dict.fromkeys(map(_source_of, (*registering, *others))))


def _symbol(source: Source | UserFunction, cpu: str) -> str:
    """The symbol of a function for a processor."""
    if isinstance(source, UserFunction):
        return f"{source.symbol}.{cpu}"
    return re.sub(r"\W", "_", f"ortops.{source.name}.{source.element}.{cpu}")


class Compiled(NamedTuple):
    """A compiled function.

    bitcode: its LLVM bitcode for any processor.
    objects: its object files, one for each processor of a target.
    """

    bitcode: bytes
    objects: list[bytes]


def compile_for(target: Target, source: Source) -> Compiled:
    """Compile a function, in a process that compiles nothing else."""
    code = cache.find(source.name, (source.element,), cache.BITCODE) or _compile_bitcode(source)
    return Compiled(code, emit_functions(target, source, code))


def _compile_bitcode(source: Source) -> bytes:
    """A function's LLVM bitcode for any processor, without the options of the environment, which numba reads at import.

    Raises:
        RuntimeError: numba was imported with other options.
    """
    for name, _ in cache.numba_options():
        del os.environ[name]
    cpu, features = machine_code.PORTABLE.get(platform.machine(), (None, None))
    if cpu is not None and features is not None:
        os.environ |= {"NUMBA_CPU_NAME": cpu, "NUMBA_CPU_FEATURES": features}
    from numba.core import config

    from ortops.compiler.compile import bitcode

    if (cpu, features) != (config.CPU_NAME, config.CPU_FEATURES):
        raise RuntimeError("code for any processor must be compiled in a process that has not imported numba")
    return bitcode(source)


def find(target: Target, source: Source) -> list[bytes] | None:
    """The object files of a function from the cache; None if one is missing."""
    codes = [cache.find(source.name, (source.element,), processor) for processor in _processors(target, source)]
    return None if None in codes else [code for code in codes if code is not None]


def save(target: Target, source: Source, compiled: Compiled) -> None:
    """Store a function's code in the cache, for `find` and `compile_for`."""
    processors = [*_processors(target, source), cache.BITCODE]
    for processor, code in zip(processors, (*compiled.objects, compiled.bitcode), strict=True):
        cache.save(source.name, (source.element,), code, processor)


def _processors(target: Target, source: Source) -> list[tuple[str, ...]]:
    """What identifies each object file in the cache."""
    return [(target.triple, cpu, _symbol(source, cpu)) for cpu in target.cpus]


def emit_functions(target: Target, source: Source | UserFunction, bitcode: bytes) -> list[bytes]:
    """The object files of a function, one for each processor of the target."""
    return [emit_function(target.triple, cpu, _symbol(source, cpu), bitcode) for cpu in target.cpus]


def can_run(triple: str, cpu: str) -> bool:
    """Whether a processor has the instructions that bitcode needs. LLVM ends the process if there is no such processor."""
    machine = machine_of(triple, cpu)
    return has_fma(machine) and has_float16(machine)


def check(target: Target) -> None:
    """Check the processors of a target.

    Raises:
        ValueError: LLVM does not know one, or it lacks instructions that bitcode needs.
    """
    for cpu in target.cpus:
        code = f"from {__name__} import can_run; print(can_run({target.triple!r}, {cpu!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode or "not a recognized processor" in done.stderr:
            raise ValueError(f"cpu = {cpu!r}: LLVM has no such processor for {target.triple}")
        if "True" not in done.stdout:
            raise ValueError(f"cpu = {cpu!r}: must have instructions for fused multiply-add and for float16")


def emit_constants(target: Target, exports: Sequence[Export]) -> list[bytes]:
    """The object files of all constants, one for each processor."""
    return [
        emit_for(target.triple, cpu, llvm.parse_assembly(str(_constants_module(exports, cpu)))) for cpu in target.cpus
    ]


def emit_native(target: Target, module: str) -> bytes:
    """The object file of a module with assembler of this machine's processor, for any of its levels."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(opt=3, reloc="pic", codemodel="default")
    code: bytes = machine.emit_object(llvm.parse_assembly(f'target triple = "{machine.triple}"\n{module}'))
    return code


_INT64 = ir.IntType(64)

_TYPES: dict[str, Any] = {
    "int64": _INT64,
    "float64": ir.DoubleType(),
    "float32": ir.FloatType(),
    "uint8": ir.IntType(8),
}


class ConstantData:
    """The constants of an LLVM module as data, whose addresses the linker fills in.

    Args:
        declare: declares a function in it.
    """

    def __init__(self, module: Any, declare: Callable[[FunctionOf], Any]) -> None:
        self._module, self._declare, self._places = module, declare, dict[Place, Any]()

    def place(self, target: Place) -> Any:
        """A pointer to a function, or to something that is emitted once."""
        if isinstance(target, FunctionOf):
            return self._declare(target)
        if isinstance(target, SharedWord):
            symbol = f"ortops.{target.name}"
            return self._module.globals.get(symbol) or ir.GlobalVariable(self._module, _INT64, symbol)
        if target not in self._places:
            if isinstance(target, str):
                content = bytearray(target.encode() + b"\0")
                value = ir.Constant(ir.ArrayType(_TYPES["uint8"], len(content)), content)
            else:
                value = self._struct(target)
            kind = target.struct.__name__ if isinstance(target, Constant) else type(target).__name__
            place = ir.GlobalVariable(self._module, value.type, f"{kind}.{len(self._places)}")
            place.linkage, place.global_constant, place.initializer, place.align = "internal", True, value, 8
            self._places[target] = place
        return self._places[target]

    def _struct(self, target: Constant | Several) -> Any:
        parts, at = [], 0
        for cell in cells(target):
            parts += self._zeros(cell.offset - at)
            if isinstance(cell.value, int | float):
                parts.append(_TYPES[cell.kind](cell.value))
            else:
                parts.append(self.place(cell.value).ptrtoint(_INT64))
            at = cell.offset + (1 if cell.kind == "uint8" else 4 if cell.kind == "float32" else 8)
        parts += self._zeros(size_of(target) - at)
        return ir.Constant(ir.LiteralStructType([part.type for part in parts], packed=True), parts)

    @staticmethod
    def _zeros(size: int) -> list[Any]:
        return [ir.Constant(ir.ArrayType(_TYPES["uint8"], size), None)] if size > 0 else []


def _constants_module(exports: Sequence[Export], cpu: str) -> Any:
    """All constants, and the functions that return an export's constant or call its function with it."""
    module = ir.Module()
    declared: dict[Source | UserFunction, Any] = {}

    def declare(function: FunctionOf, parameters: int = 0) -> Any:
        source = _source_of(function)
        if source not in declared:
            function_type = ir.FunctionType(_INT64, [_INT64] * parameters)
            declared[source] = ir.Function(module, function_type, _symbol(source, cpu))
        return declared[source]

    data = ConstantData(module, declare)
    for export in exports:
        call = ir.Function(module, ir.FunctionType(_INT64, [_INT64] * 2), entry_of(export.name, cpu))
        builder = ir.IRBuilder(call.append_basic_block())
        result = data.place(export.constant).ptrtoint(_INT64)
        if export.function:
            result = builder.call(declare(export.function, 3), (*call.args, result))
        builder.ret(result)
    return module
