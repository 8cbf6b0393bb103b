"""How functions are compiled that only compiled code calls: to be put into their callers, not to be run by themselves.

numba makes machine code of every function by itself, before it is put into its callers and made anew there. Measured:
without that, the first call of an operator compiles in 65 % of the time, and what comes of it is as fast.
"""

from __future__ import annotations

from typing import Any, Final

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.typed_passes import AnnotateTypes


class _NoEnvironment:
    """In place of a code generator where there is no code to set the environment of: inner functions use none."""

    def set_env(self, env_name: str, env: Any) -> None:
        """Do nothing."""


class _InnerLibrary(JITCodeLibrary):
    """The code of one function, to be linked into others, which optimise it with their own."""

    codegen = _NoEnvironment()

    def get_pointer_to_function(self, name: str) -> int:  # noqa: ARG002 - the signature is numba's
        """None: numba's word for it is 0."""
        return 0

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True


@register_pass(mutates_CFG=False, analysis_only=True)
class _UseInnerLibrary(AnalysisPass):
    _name = "use_inner_library"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Give lowering the library that it would make itself."""
        state.library = _InnerLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return True


class _Compiler(CompilerBase):
    def define_pipelines(self) -> list[Any]:
        """numba's own for nopython mode, and that pass."""  # noqa: D403  # a name
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_UseInnerLibrary, AnnotateTypes)
        passes.finalize()
        return [passes]


INNER: Final = {
    "nogil": True,
    "no_cpython_wrapper": True,
    "no_cfunc_wrapper": True,
    "pipeline_class": _Compiler,
}
"""Options of `numba.njit`. Such a function cannot be called from Python."""
