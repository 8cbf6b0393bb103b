# SPDX-License-Identifier: MIT
"""What is in a library: compiles, emits and links its functions."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from ortops.compiler import cache
from ortops.compiler.machine_code import Source
from ortops.custom.compiled import CompiledOperator
from ortops.foreign.standard import implementation, standard_operators
from ortops.library.exports import INTERFACE, module_of
from ortops.library.linking import link, linker_of
from ortops.library.objects import (
    Export,
    UserFunction,
    check,
    compile_for,
    emit_constants,
    emit_functions,
    find,
    save,
    sources_of,
)
from ortops.library.operators import domains_of, interface_of
from ortops.library.processes import in_processes
from ortops.library.targets import STANDARD_OPSETS, TARGETS
from ortops.native.constants import FunctionOf
from ortops.native.ort import registration
from ortops.progress import with_progress
from ortops.runtime import sources_digest
from ortops.spec import DOMAIN, Operator


def exports_of(
    operators: Sequence[Operator],
    types: Sequence[str],
    standard: int | None = None,
    users: Sequence[CompiledOperator] = (),
    domain: str = DOMAIN,
) -> list[Export]:
    """The functions of a library with operators of this package, and with those of users; see `build_library`."""
    opset_operators: dict[int, list[Operator]] = {}
    for opset in STANDARD_OPSETS:
        if named := [op for op in standard_operators(opset) if implementation(op.name, opset) in operators]:
            opset_operators[opset] = named
    if standard is not None and standard not in opset_operators:
        needed = " or ".join(implementation(operator.name, standard).name for operator in standard_operators(standard))
        raise ValueError(f"standard = {standard}: must have {needed} among the operators")
    first = operators if standard is None else opset_operators[standard]
    register = FunctionOf(registration.register)
    onnx_operators = dict.fromkeys(operator for named in opset_operators.values() for operator in named)
    return [
        Export("RegisterCustomOps", domains_of([*first, *users], types, domain), register),
        *(
            Export(f"RegisterOnnx{opset}", domains_of(named, types), register)
            for opset, named in opset_operators.items()
        ),
        Export(INTERFACE, interface_of([*operators, *users, *onnx_operators], types)),
    ]


def library_with(exports: Sequence[Export], target: str, cpu: str | None = None, jobs: int | None = None) -> bytes:
    """A shared library with these functions.

    Args:
        exports: the functions.
        target: as for `build_library`.
        cpu: as for `build_library`.
        jobs: the number of processes that compile; None for one per CPU.

    Raises:
        Exception: see `build_library`; or RuntimeError, because a source file of this package was changed meanwhile.
    """
    digest = sources_digest()
    platform = TARGETS[target]
    if cpu is not None:
        platform = platform._replace(cpus=(cpu,))
        check(platform)
    linker_of(target)
    sources = sources_of(exports)
    objects: dict[Source | UserFunction, list[bytes]] = {}
    for source in sources:
        if isinstance(source, UserFunction):  # can be of a notebook, which other processes cannot import
            objects[source] = emit_functions(platform, source, source.bitcode())
        elif stored := find(platform, source):
            objects[source] = stored
    missing = sorted(
        (source for source in sources if isinstance(source, Source) and source not in objects),
        key=lambda source: source.element != "",  # code without element types is the largest, so it starts first
    )
    compiled = in_processes(missing, functools.partial(compile_for, platform), jobs)
    for source, code in with_progress(compiled, "compiling", len(missing), unit="functions"):
        check_sources(digest)
        save(platform, source, code)
        objects[source] = code.objects
    if missing:
        cache.remove_unused()
    constants = emit_constants(platform, exports)
    files = itertools.chain(constants, *(objects[source] for source in sources))  # in an order that is always the same
    library = link(target, module_of([export.name for export in exports], platform), list(files))
    check_sources(digest)
    return library


def check_sources(digest: str) -> None:
    """Raise RuntimeError if the sources have another digest than they had."""
    if sources_digest() != digest:
        raise RuntimeError("a source file was changed while the library was built: build it again")
