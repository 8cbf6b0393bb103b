"""Object files of a library: of compiled functions, of records, and of the functions that hosts call."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import binding as llvm
from llvmlite import ir

from ortops.calls.records import FunctionOf, Record, SharedWord, Word, functions
from ortops.jit import disk, machine_code
from ortops.jit.machine_code import emit_for, emit_function, has_float16, has_fma, machine_of
from ortops.jit.source import Source
from ortops.library.entries import entry_of
from ortops.library.targets import Target

if TYPE_CHECKING:
    from ortops.compiled_operator import CompiledOperator

_INT64 = ir.IntType(64)


class Export(NamedTuple):
    """A function of the library that hosts call.

    name: its symbol.
    record: the record that the function returns, or that `function` gets.
    function: a C function (options, api_base, record) -> status, if hosts call the export with OrtSessionOptions* and
        OrtApiBase* for an OrtStatus*.
    """

    name: str
    record: Record
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
    """What there is to compile of the exports and of all functions in their records."""
    registering = [export.function for export in exports if export.function]
    in_records = (function for export in exports for function in functions(export.record))
    return list(dict.fromkeys(map(_source_of, (*registering, *in_records))))


def _records_of(exports: Sequence[Export]) -> list[Record]:
    """All records, each after those in its words."""
    found: dict[Record, None] = {}

    def visit(record: Record) -> None:
        if record not in found:
            for word in record.words:
                if isinstance(word, Record):
                    visit(word)
            found[record] = None

    for export in exports:
        visit(export.record)
    return list(found)


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
    code = disk.find(source.name, (source.element,), disk.BITCODE) or _compile_bitcode(source)
    return Compiled(code, emit_functions(target, source, code))


def _compile_bitcode(source: Source) -> bytes:
    """A function's LLVM bitcode for any processor, without the options of the environment, which numba reads at import."""
    for name, _ in disk.numba_options():
        del os.environ[name]
    if platform.machine() in machine_code.PORTABLE:
        os.environ |= zip(
            ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"), machine_code.PORTABLE[platform.machine()], strict=True
        )
    from ortops.jit.compile import bitcode

    return bitcode(source)


def find(target: Target, source: Source) -> list[bytes] | None:
    """The object files of a function from the cache; None if one is missing."""
    found = [disk.find(source.name, (source.element,), processor) for processor in _processors(target, source)]
    return None if None in found else [code for code in found if code is not None]


def save(target: Target, source: Source, compiled: Compiled) -> None:
    """Store a function's code in the cache, for `find` and `compile_for`."""
    processors = [*_processors(target, source), disk.BITCODE]
    for processor, code in zip(processors, (*compiled.objects, compiled.bitcode), strict=True):
        disk.save(source.name, (source.element,), code, processor)


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


def emit_records(target: Target, exports: Sequence[Export]) -> list[bytes]:
    """The object files of all records, one for each processor."""
    return [
        emit_for(target.triple, cpu, llvm.parse_assembly(str(_records_module(exports, cpu)))) for cpu in target.cpus
    ]


def emit_native(target: Target, module: str) -> bytes:
    """The object file of a module with assembler of this machine's processor, for any of its levels."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_triple(target.triple).create_target_machine(opt=3, reloc="pic", codemodel="default")
    code: bytes = machine.emit_object(llvm.parse_assembly(f'target triple = "{machine.triple}"\n{module}'))
    return code


def _records_module(exports: Sequence[Export], cpu: str) -> Any:
    """All records as constants, and the functions that call an export's function with its record."""
    module = ir.Module()
    records: dict[Record, Any] = {}
    texts: dict[str, Any] = {}
    declared: dict[Source | UserFunction, Any] = {}

    def function_of(function: FunctionOf, parameters: int = 0) -> Any:
        source = _source_of(function)
        if source not in declared:
            function_type = ir.FunctionType(_INT64, [_INT64] * parameters)
            declared[source] = ir.Function(module, function_type, _symbol(source, cpu))
        return declared[source]

    def constant(name: str, value: Any) -> Any:
        variable = ir.GlobalVariable(module, value.type, name)
        variable.linkage, variable.global_constant, variable.initializer = "internal", True, value
        return variable

    def address(word: Word) -> Any:
        """The constant of a word."""
        if isinstance(word, Record):
            return records[word].ptrtoint(_INT64)
        if isinstance(word, FunctionOf):
            return function_of(word).ptrtoint(_INT64)
        if isinstance(word, SharedWord):
            return shared(word.name).ptrtoint(_INT64)
        if isinstance(word, str):
            if word not in texts:
                content = bytearray(word.encode() + b"\0")
                texts[word] = constant(
                    f"text.{len(texts)}", ir.Constant(ir.ArrayType(ir.IntType(8), len(content)), content)
                )
            return texts[word].ptrtoint(_INT64)
        return ir.Constant(ir.DoubleType(), word).bitcast(_INT64) if isinstance(word, float) else _INT64(int(word))

    def shared(name: str) -> Any:
        symbol = f"ortops.{name}"
        return module.globals.get(symbol) or ir.GlobalVariable(module, _INT64, symbol)

    for export in exports:
        if export.function:
            function_of(export.function, 3)
    for record in _records_of(exports):
        values = [address(word) for word in record.words]
        name = f"record.{len(records)}.{record.name}"
        records[record] = constant(name, ir.Constant(ir.ArrayType(_INT64, len(values)), values))
    for export in exports:
        call = ir.Function(module, ir.FunctionType(_INT64, [_INT64] * 2), entry_of(export.name, cpu))
        builder = ir.IRBuilder(call.append_basic_block())
        address = records[export.record].ptrtoint(_INT64)
        if export.function:
            address = builder.call(declared[_source_of(export.function)], (*call.args, address))
        builder.ret(address)
    return module
