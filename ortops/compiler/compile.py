# SPDX-License-Identifier: MIT
"""Compile a kernel: numba infers types and lowers, LLVM optimises once for the whole kernel.

Apart from this file, only `parallel.py`, `scalar.py`, `simd.py`, `struct_types.py` and `text.py` use numba's private parts.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, TypeVar, get_type_hints

from llvmlite import binding as llvm
from numba import njit, types
from numba.core import cgutils, config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import AnalysisPass, PassManager, register_pass
from numba.core.ir_utils import build_definitions
from numba.core.lowering import Lower
from numba.core.registry import cpu_target
from numba.core.ssa import reconstruct_ssa
from numba.core.typed_passes import NativeLowering, NoPythonBackend, NopythonTypeInference, PreLowerStripPhis
from numba.core.typing import Context
from numba.core.untyped_passes import FixupArgs, GenericRewrites, ReconstructSSA, TranslateByteCode

from ortops.compiler.machine_code import SYMBOL, Source
from ortops.compiler.parallel import emit_c_function
from ortops.compiler.scalar import LanesType, compute_type
from ortops.compiler.struct_types import parameter_type
from ortops.native.elements import PANEL

F = TypeVar("F", bound=Callable[..., Any])


class _NoEnvironment:
    """A code generator that ignores the environments of functions, which kernels do not use."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Ignore the environment."""


class _CalleeLibrary(JITCodeLibrary):
    """A function's unoptimised LLVM module, which the kernels that use it link and optimise.

    numba would optimise and emit each function separately, and once more inside each caller. Measured: that doubles the
    compilation time.
    """

    codegen = _NoEnvironment()
    inlining = ""

    def add_ir_module(self, ir_module: Any) -> None:
        """Link the module, and mark its function noinline or alwaysinline if asked to."""
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

    def finalize(self) -> None:
        """Link nothing: a callee's own callees are linked once, into the kernel."""
        self._finalized = True

    def callees(self) -> Iterator[Any]:
        """The libraries of all functions that this function calls, directly or indirectly."""
        for library in self._linking_libraries:
            yield library
            if isinstance(library, _CalleeLibrary):
                yield from library.callees()


class _Lower(Lower):
    """numba's lowering without reference counts and, unless debugging is on, without descriptions of variables."""

    def delvar(self, name: str) -> None:
        """Do nothing; numba would clear the variable."""

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Store a variable's value without loading the old value."""
        if self.flags.debuginfo:
            super().storevar(value, name, argidx)
        elif name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self._alloca_var(name, self.typeof(name))
            self.builder.store(value, self.getvar(name))

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Emit an operator with the signature that inference found; numba would search for it again."""
        if expr.op != "binop":  # in an assignment such as +=, for which inference found another function
            return super().lower_binop(resty, expr, op)
        signature, context = self.fndesc.calltypes[expr], self.context
        operands = [
            context.cast(self.builder, self.loadvar(operand.name), self.typeof(operand.name), arg_type)
            for operand, arg_type in zip((expr.lhs, expr.rhs), signature.args, strict=True)
        ]
        function = context.get_function(context.typing_context.resolve_value_type(op), signature)
        return context.cast(self.builder, function(self.builder, operands), signature.return_type, resty)

    def alloca_lltype(self, name: str, lltype: Any, datamodel: Any = None) -> Any:
        """Allocate a variable on the stack."""
        if self.flags.debuginfo:
            return super().alloca_lltype(name, lltype, datamodel)
        return cgutils.alloca_once(self.builder, lltype, name=name, zfill=False)


class _Typing(Context):
    """numba's type inference for calls, with a cache of their signatures.

    numba tries all definitions of an operator for each of its uses, and again whenever it finds another variable's type.
    Measured: the cache takes a tenth off the processor time of a first average.
    """

    signatures: ClassVar[dict[Any, Any]] = {}

    def __init__(self) -> None:
        self.__dict__ = cpu_target.typing_context.__dict__

    def resolve_function_type(self, func: Any, args: Any, kws: Any) -> Any:
        """The signature of a call with arguments of these types, or None if numba finds no signature."""
        # A module imported later may add definitions to an operator, which then has another type.
        key = self._lookup_global(func) or func, tuple(args), tuple(dict(kws).items())
        if key not in self.signatures:
            signature = super().resolve_function_type(func, args, kws)
            if signature is None:
                return None
            self.signatures[key] = signature
        return self.signatures[key]


@register_pass(mutates_CFG=False, analysis_only=False)
class _Assignments(ReconstructSSA):
    _name = "single_assignments"

    def run_pass(self, state: Any) -> bool:
        """Give each assignment its own variable, without computing lifetimes."""
        state.func_ir = reconstruct_ssa(state.func_ir)
        state.func_ir._definitions = build_definitions(state.func_ir.blocks)  # noqa: SLF001 - as numba's own
        return True


@register_pass(mutates_CFG=False, analysis_only=False)
class _StripPhis(PreLowerStripPhis):
    _name = "strip_phis_alone"

    def run_pass(self, state: Any) -> bool:
        """Replace the nodes that join variables, without computing lifetimes."""
        state.func_ir = self._strip_phi_nodes(state.func_ir)
        return True


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(NativeLowering):
    _name = "lowering"
    lowering_class = _Lower


class _KernelLibrary(_CalleeLibrary):
    """The code of a kernel and all functions that it calls."""

    optimizes_for_size = False

    def finalize(self) -> None:
        """Link all callees and optimise the module."""
        for library in dict.fromkeys(self.callees()):
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)  # noqa: SLF001 - as numba's own
        self._optimize()
        self._final_module.verify()
        self._finalized = True

    def _optimize(self) -> None:
        codegen = self._codegen
        passes, builder = codegen._module_pass_manager()  # noqa: SLF001 - with numba's options for LLVM
        if self.optimizes_for_size:
            options = llvm.create_pipeline_tuning_options(speed_level=int(config.OPT))
            options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
            builder = llvm.create_pass_builder(codegen._tm, options)  # noqa: SLF001 - the target of numba's own code
            passes = builder.getModulePassManager()
        passes.run(self._final_module, builder)

    @property
    def module(self) -> Any:
        """The optimised module."""
        return self._final_module

    def emit(self, module: Any) -> bytes:
        """A module's object file, for the processor that numba compiles for."""
        code: bytes = self._codegen._tm.emit_object(module)  # noqa: SLF001 - the target of numba's own code
        return code

    def bitcode(self) -> bytes:
        """The optimised module as bitcode, the same in every process."""
        # Functions are objects of this process for numba, which passes their addresses in vain.
        text = re.sub(r"(?m)^(@numba\.dynamic\..*) inttoptr \(i64 \d+ to ptr\)", r"\1 null", str(self._final_module))
        numbers: dict[str, int] = {}  # replace names that depend on what the process compiled before
        text = re.sub(
            r"_ZN\w+|numba\.dynamic\.\w+\.\w+", lambda name: f"f{numbers.setdefault(name[0], len(numbers))}", text
        )
        code: bytes = llvm.parse_assembly(text).as_bitcode()
        return code


@register_pass(mutates_CFG=False, analysis_only=True)
class _UseCalleeLibrary(AnalysisPass):
    _name = "use_inner_library"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Have numba lower into a `_CalleeLibrary` instead of its own library."""
        state.library = _CalleeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.inlining = getattr(state.func_id.func, "inlining", "")
        return True


_PASSES = (
    *(TranslateByteCode, FixupArgs, GenericRewrites, _Assignments),
    *(NopythonTypeInference, _StripPhis, _UseCalleeLibrary, _Lowering, NoPythonBackend),
)


class _Compiler(CompilerBase):
    def __init__(self, _typing: Any, *arguments: Any) -> None:
        super().__init__(_Typing(), *arguments)

    def define_pipelines(self) -> list[Any]:
        """The passes of numba's nopython pipeline that kernels need, plus `_UseCalleeLibrary`.

        Kernels do not need the passes that inline closures, rewrite array expressions or prune branches by literal types, as
        they have none of these; nor the passes that find where variables end, as they count no references. Measured: without
        these passes a first average takes 13 % less processor time.
        """
        manager = PassManager("kernel")
        for step in _PASSES:
            manager.add_pass(step, step.__name__)
        manager.finalize()
        return [manager]


def compiled(function: F) -> F:
    """Decorate a function that is compiled as part of a kernel. Python cannot call it."""
    dispatcher = njit(
        nogil=True,
        no_cpython_wrapper=True,
        no_cfunc_wrapper=True,
        error_model="numpy",  # a division by zero raises nothing
        _nrt=False,  # kernels count no references
        pipeline_class=_Compiler,
    )(function)
    find = dispatcher.get_call_template

    def find_for_types(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        """Replace literal types, since numba would compile the function again for each of them."""
        return find(
            tuple(map(types.unliteral, args)), {name: types.unliteral(arg_type) for name, arg_type in kws.items()}
        )

    dispatcher.get_call_template = find_for_types
    return dispatcher


def noinline(function: F) -> F:
    """Decorate as `compiled`, and keep LLVM from inlining: for a large function with several callers."""
    function.__dict__["inlining"] = "noinline"
    return compiled(function)


def inline(function: F) -> F:
    """Decorate as `compiled`, and have LLVM inline every call: for a function whose constant arguments remove branches."""
    function.__dict__["inlining"] = "alwaysinline"
    return compiled(function)


def optimize_for_size(function: F) -> F:
    """Decorate a C function as `compiled`, without unrolling or vectorising its loops, which would not be worth the time."""
    function.__dict__["optimizes_for_size"] = True
    return compiled(function)


def bitcode(source: Source) -> bytes:
    """The optimised LLVM bitcode of a C function."""
    return _library(source).bitcode()


def _library(source: Source) -> _KernelLibrary:
    """A source's code."""
    dispatcher = getattr(importlib.import_module(f"ortops.{source.module}"), source.function)
    return library_of(source.name, dispatcher, source.element)


@global_compiler_lock
def library_of(name: str, dispatcher: Any, element: str) -> _KernelLibrary:
    """The code of a `compiled` function as a C function, whose parameters its annotations give.

    Args:
        name: the code's name.
        dispatcher: the function.
        element: as `Source.element`.
    """
    hints = get_type_hints(dispatcher.py_func, include_extras=True)
    names = inspect.signature(dispatcher.py_func).parameters
    numba_types = tuple(_annotated(hints[name], element) for name in names)
    dispatcher.compile(numba_types)
    overload = dispatcher.overloads[numba_types]
    context = cpu_target.target_context
    library = _KernelLibrary(context.codegen(), name)
    library.optimizes_for_size = getattr(dispatcher.py_func, "optimizes_for_size", False)
    library.add_linking_library(overload.library)
    ir_module = library.create_ir_module(SYMBOL)
    emit_c_function(context, ir_module, SYMBOL, overload, numba_types)
    library.add_ir_module(ir_module)
    library.finalize()
    return library


_ELEMENTS = {"float16": types.uint16, "bfloat16": types.int16, "float": types.float32, "double": types.float64}
"""The element types' numba types in compiled code."""


def _annotated(hint: Any, element: str) -> Any:
    """The numba type of a parameter or a named tuple's field."""
    known = parameter_type(hint)
    if known is not None:
        return known
    if hasattr(hint, "__metadata__"):
        (kind,) = hint.__metadata__
        stored, of_panel = _ELEMENTS[element.removesuffix(PANEL)], element.endswith(PANEL)
        if kind in ("values", "stored"):
            return types.CPointer(compute_type(stored) if kind == "values" else stored)
        is_wide = kind == "wide" or (kind == "places" and not of_panel)
        real = types.float64 if is_wide else compute_type(stored)
        if of_panel:
            return types.CPointer(LanesType(real))
        return types.CPointer(stored if kind == "pixels" else real)
    fields = get_type_hints(hint, include_extras=True)
    return types.BaseTuple.from_types([_annotated(fields[name], element) for name in hint._fields], hint)
