"""Compile a kernel to an object file: numba infers types and lowers, LLVM optimises once for the whole kernel.

Besides this file only `cpu_features.py`, `parallel.py`, `scalar.py` and `simd.py` use private parts of numba.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
from collections.abc import Callable
from typing import Any, get_type_hints

from llvmlite import ir
from numba import njit, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.registry import cpu_target
from numba.core.typed_passes import AnnotateTypes

from ortops.kernels.jit.kernel import ArgType
from ortops.kernels.jit.machine_code import SYMBOL
from ortops.kernels.jit.scalar import compute_type
from ortops.kernels.jit.words import from_words, to_words

_INT64 = ir.IntType(64)


class _NoEnvironment:
    """A code generator that ignores the environments of functions, which kernels do not use."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Ignore the environment."""


class _CalleeLibrary(JITCodeLibrary):
    """The unoptimised LLVM module of one function, which its kernels link and optimise.

    numba would optimise and emit each function by itself, and once more inside each caller. Measured: that doubles the
    time of compilation.
    """

    codegen = _NoEnvironment()
    inlining = ""

    def add_ir_module(self, ir_module: Any) -> None:
        """Link the module, marking its function noinline or alwaysinline where asked for."""
        if self.inlining:
            for function in ir_module.functions:
                if not function.is_declaration:
                    # numba's options for debugging make all functions noinline.
                    function.attributes.discard("noinline")
                    function.attributes.add(self.inlining)
        super().add_ir_module(ir_module)

    def add_llvm_module(self, ll_module: Any) -> None:
        """Link an LLVM module without optimising it."""
        ll_module.data_layout = self._codegen._data_layout  # noqa: SLF001 - as numba's own
        self._final_module.link_in(ll_module)

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002 - the signature is numba's
        """0: the function has no address in this process."""
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class _KernelLibrary(_CalleeLibrary):
    """The code of a kernel and of all functions that it calls."""

    def _optimize_final_module(self) -> None:
        codegen = self._codegen
        managers = codegen._module_pass_manager()  # noqa: SLF001 - with numba's options for LLVM
        passes, *builder = managers if isinstance(managers, tuple) else (managers,)  # numba < 0.62 returns no builder
        passes.run(self._final_module, *builder)

    def object_code(self) -> bytes:
        """The optimised object file."""
        self._ensure_finalized()
        code: bytes = self._codegen._tm.emit_object(self._final_module)  # noqa: SLF001 - the target of numba's own code
        return code


@register_pass(mutates_CFG=False, analysis_only=True)
class _UseCalleeLibrary(AnalysisPass):
    _name = "use_inner_library"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Have numba lower into a `_CalleeLibrary` in place of its own."""
        state.library = _CalleeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.inlining = getattr(state.func_id.func, "inlining", "")
        return True


class _Compiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        """The nopython pipeline of numba with `_UseCalleeLibrary` added."""
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_UseCalleeLibrary, AnnotateTypes)
        passes.finalize()
        return [passes]


def compiled(function: Any) -> Any:
    """Decorate a function to be compiled as part of a kernel. Python cannot call it."""
    dispatcher = njit(
        nogil=True,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        error_model="numpy",  # a division by zero raises nothing
        pipeline_class=_Compiler,
    )(function)
    find = dispatcher.get_call_template

    def find_for_types(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        """Drop literal types, for each of which numba would compile the function again."""
        return find(
            tuple(map(types.unliteral, args)), {name: types.unliteral(arg_type) for name, arg_type in kws.items()}
        )

    dispatcher.get_call_template = find_for_types
    return dispatcher


def noinline(function: Any) -> Any:
    """Decorate as `compiled`, and keep LLVM from inlining: for a large function with several callers."""
    function.inlining = "noinline"
    return compiled(function)


def inline(function: Any) -> Any:
    """Decorate as `compiled`, and have LLVM inline every call: for a function whose constant arguments remove branches."""
    function.inlining = "alwaysinline"
    return compiled(function)


@global_compiler_lock
def compile_kernel(module: str, function: str, arg_types: tuple[ArgType, ...]) -> bytes:
    """The object file of a kernel for these argument types."""
    numba_types = tuple(_type(arg_type) for arg_type in arg_types)

    def arguments(context: Any, builder: Any, parameters: Any) -> list[Any]:
        slots = itertools.count()
        return [_argument(context, builder, parameters[0], slots, arg_type) for arg_type in numba_types]

    return _compile(module, function, numba_types, [_INT64.as_pointer()], arguments)


@global_compiler_lock
def compile_function(module: str, function: str, element: str) -> bytes:
    """The object file of a C function, whose parameters have the types of the annotations and are passed as 64-bit words.

    Args:
        module: the module below `ortops.kernels`.
        function: the name of the function in it.
        element: the element type of `layout.Stored`; "" for a function without such parameters.
    """
    dispatcher = getattr(importlib.import_module(f"ortops.kernels.{module}"), function)
    hints = get_type_hints(dispatcher.py_func, include_extras=True)
    numba_types = tuple(_annotated(hints[name], element) for name in inspect.signature(dispatcher.py_func).parameters)
    count = sum(_word_count(one) for one in numba_types)

    def arguments(context: Any, builder: Any, parameters: Any) -> list[Any]:
        words = iter(parameters)
        return [from_words(context, builder, words, one) for one in numba_types]

    return _compile(module, function, numba_types, [_INT64] * count, arguments)


_ELEMENTS = {"float16": types.uint16, "bfloat16": types.int16, "float": types.float32, "double": types.float64}
"""The types of elements in compiled code."""


def _annotated(hint: Any, element: str) -> Any:
    """The numba type of a parameter or of a field of a named tuple."""
    if hint in (int, float, bool):
        return {int: types.intp, float: types.float64, bool: types.boolean}[hint]
    if hasattr(hint, "__metadata__"):
        (kind,) = hint.__metadata__
        if kind in ("int64", "float64"):
            return types.CPointer(getattr(types, kind))
        stored = _ELEMENTS[element]
        return types.CPointer(compute_type(stored) if kind == "values" else stored)
    fields = get_type_hints(hint, include_extras=True)
    return types.BaseTuple.from_types([_annotated(fields[name], element) for name in hint._fields], hint)


def _word_count(numba_type: Any) -> int:
    return sum(map(_word_count, numba_type.types)) if isinstance(numba_type, types.BaseTuple) else 1


def _compile(
    module: str, function: str, numba_types: tuple[Any, ...], parameters: list[Any], arguments: Callable[..., list[Any]]
) -> bytes:
    dispatcher = getattr(importlib.import_module(f"ortops.kernels.{module}"), function)
    dispatcher.compile(numba_types)
    overload = dispatcher.overloads[numba_types]
    context = cpu_target.target_context
    library = _KernelLibrary(context.codegen(), f"{module}.{function}")
    library.add_linking_library(overload.library)
    ir_module = library.create_ir_module(SYMBOL)
    kernel = ir.Function(ir_module, ir.FunctionType(_INT64, parameters), name=SYMBOL)
    builder = ir.IRBuilder(kernel.append_basic_block("entry"))
    values = arguments(context, builder, kernel.args)
    callee = context.declare_function(ir_module, overload.fndesc)
    returned = overload.signature.return_type
    _, result = context.call_conv.call_function(builder, callee, returned, numba_types, values)
    builder.ret(_INT64(0) if returned == types.none else next(to_words(builder, result, returned)))
    library.add_ir_module(ir_module)
    return library.object_code()


def _type(arg_type: ArgType) -> Any:
    """The numba type of an argument."""
    if isinstance(arg_type, tuple):
        cls, fields = arg_type
        return types.BaseTuple.from_types([_type(field) for field in fields], cls)
    return types.CPointer(getattr(types, arg_type[1:])) if arg_type.startswith("*") else getattr(types, arg_type)


def _argument(context: Any, builder: Any, slots: Any, slot_numbers: Any, arg_type: Any) -> Any:
    """Emit the load of one argument from the next 8-byte slots, one for each scalar of a tuple."""
    words = (builder.load(builder.gep(slots, [ir.IntType(32)(number)])) for number in slot_numbers)
    return from_words(context, builder, words, arg_type)
