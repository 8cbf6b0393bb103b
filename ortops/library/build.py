"""Builds a library: compiles, emits and links."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ortops import atomic_file
from ortops.calls.records import FunctionOf
from ortops.compiled_operator import CompiledOperator
from ortops.custom_operator import CustomOperator, as_operators, check_domain
from ortops.jit import disk
from ortops.jit.source import Source
from ortops.library.compiled import registration
from ortops.library.entries import INTERFACE, module_of
from ortops.library.linking import link, linker_of
from ortops.library.objects import (
    Export,
    UserFunction,
    check,
    compile_for,
    emit_functions,
    emit_records,
    find,
    save,
    sources_of,
)
from ortops.library.operators import interface_record, register_record
from ortops.library.processes import in_processes
from ortops.library.targets import FLOAT_TYPES, STANDARD_OPSETS, TARGETS, this_machine
from ortops.operators import BY_NAME, OPERATORS
from ortops.progress import with_progress
from ortops.runtime import sources_digest
from ortops.spec import DOMAIN, Operator
from ortops.standard import implementation, standard_operators


def build_library(
    out: str | os.PathLike[str],
    operators: CustomOperator | Iterable[str | CustomOperator] | None = None,
    types: Iterable[str] | None = None,
    *,
    target: str | None = None,
    cpu: str | None = None,
    standard: int | None = None,
    domain: str = DOMAIN,
) -> list[str]:
    """Write a shared library of operators, which ONNX Runtime loads without Python.

    Its functions are RegisterCustomOps, which adds all `operators`, and RegisterOnnx10, RegisterOnnx16 and RegisterOnnx22
    if some are ONNX's; docs/library.md tells how hosts call them. What is compiled is kept on disk, as by `warmup`; the
    first library takes a minute.

    Args:
        out: the file to write.
        operators: names of operators of this package, and operators that `ortops.operator` made with `compiled`; None for
            all of this package.
        types: element types, out of "float16", "bfloat16", "float" and "double"; None for all.
        target: the platform, such as "aarch64-linux"; None for this machine. Another one needs the extra `library`.
        cpu: LLVM's name of the only processor to compile for, such as "znver5". With None, a library for x86-64 has code for
            x86-64-v3 and for x86-64-v4, and takes what the processor can run.
        standard: the opset, 10, 16 or 22, whose definitions of ONNX's own operators RegisterCustomOps puts in the place of
            those of ONNX Runtime; None if it adds the operators of this project's domain.
        domain: the name that this project's domain gets, for a host that also registers onnxruntime-extensions' library,
            which has a domain of the same name.

    Returns:
        The names of the library's functions, one of which a host calls.

    Raises:
        ValueError: an operator, type, target, processor or opset is unknown, two operators have one domain and name, or the
            processor lacks instructions for fused multiply-add or for float16.
        TypeError: `operators` or `types` is a string, or an operator is not compiled.
        ortops.OperatorError: numba cannot compile an operator, or its code needs what a library does not have.
        RuntimeError: there is nothing to link with, or it fails.
        OSError: the file cannot be written.
    """
    target = this_machine() if target is None else target
    if target not in TARGETS:
        raise ValueError(f"target = {target!r}: must be one of {', '.join(TARGETS)}")
    if standard not in (None, *STANDARD_OPSETS):
        raise ValueError(f"standard = {standard!r}: must be one of {', '.join(map(str, STANDARD_OPSETS))}")
    check_domain(domain)
    chosen, own = _chosen(operators)
    exports = exports_of(chosen, checked_types([*chosen, *own], types), standard, own, domain)
    atomic_file.check(Path(out))
    atomic_file.write(Path(out), library_with(exports, target, cpu))  # a process may have loaded the old one
    return [export.name for export in exports if export.function]


def _chosen(
    operators: CustomOperator | Iterable[str | CustomOperator] | None,
) -> tuple[Sequence[Operator], list[CompiledOperator]]:
    """The operators of this package and those of users.

    Raises:
        ValueError: a name is unknown, or an operator is there twice.
        TypeError: one string is given, or what is no operator, or one that is not compiled.
    """
    if operators is None or isinstance(operators, str):
        return operators_named(operators), []
    given: Sequence[str | CustomOperator] = as_operators(operators)
    own = [one for one in given if isinstance(one, CompiledOperator)]
    for one in given:
        if isinstance(one, CustomOperator) and one not in own:
            raise TypeError(f"operators has {one.label}, which needs Python: must be made with compiled = True")
        if not isinstance(one, str | CustomOperator):
            raise TypeError(f"operators has {one!r}: must be names, and operators that ortops.operator made")
    chosen = operators_named([one for one in given if isinstance(one, str)])
    labels = [one.label for one in (*chosen, *own)]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"operators has {label} {labels.count(label)} times: must have it once")
    return chosen, own


def _joined(words: Iterable[str]) -> str:
    return ", ".join(sorted(set(words)))


def operators_named(names: Iterable[str] | None) -> Sequence[Operator]:
    """The operators with these names; all for None.

    Raises:
        ValueError: a name is unknown.
        TypeError: the argument is a string.
    """
    if names is None:
        return OPERATORS
    if isinstance(names, str):
        raise TypeError(f"operators = {names!r}: must be a list of names")
    names = list(names)
    for name in names:
        if name not in BY_NAME:
            raise ValueError(f"operators has {name!r}: must be among {_joined(BY_NAME)}")
    return [BY_NAME[name] for name in names]


def checked_types(operators: Sequence[Operator], types: Iterable[str] | None) -> Sequence[str]:
    """The element types to compile for; all for None.

    Raises:
        ValueError: a type is unknown, or no operator has it.
        TypeError: the argument is a string.
    """
    if types is None:
        return FLOAT_TYPES
    if isinstance(types, str):
        raise TypeError(f"types = {types!r}: must be a list of names")
    types = list(types)
    tensors = ((operator, one) for operator in operators for one in (*operator.inputs, *operator.outputs))
    allowed = {kind for operator, one in tensors for kind in operator.element_types(one) if kind in FLOAT_TYPES}
    for name in types:
        if name not in allowed:
            raise ValueError(f"types has {name!r}: must be among {_joined(allowed)}, the types of these operators")
    return types


def exports_of(
    operators: Sequence[Operator],
    types: Sequence[str],
    standard: int | None = None,
    own: Sequence[CompiledOperator] = (),
    domain: str = DOMAIN,
) -> list[Export]:
    """The functions of a library with operators of this package, and with those of users; see `build_library`."""
    of_opsets: dict[int, list[Operator]] = {}
    for opset in STANDARD_OPSETS:
        if named := [one for one in standard_operators(opset) if implementation(one.name, opset) in operators]:
            of_opsets[opset] = named
    if standard is not None and standard not in of_opsets:
        needed = " or ".join(implementation(one.name, standard).name for one in standard_operators(standard))
        raise ValueError(f"standard = {standard}: must have {needed} among the operators")
    first = operators if standard is None else of_opsets[standard]
    register = FunctionOf(registration.register)
    of_onnx = dict.fromkeys(operator for named in of_opsets.values() for operator in named)
    return [
        Export("RegisterCustomOps", register_record("ortops", [*first, *own], types, domain), register),
        *(
            Export(f"RegisterOnnx{opset}", register_record(f"onnx_{opset}", named, types), register)
            for opset, named in of_opsets.items()
        ),
        Export(INTERFACE, interface_record([*operators, *own, *of_onnx], types)),
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
        elif found := find(platform, source):
            objects[source] = found
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
        disk.remove_unused()
    records = emit_records(platform, exports)
    files = itertools.chain(records, *(objects[source] for source in sources))  # in an order that is always the same
    library = link(target, module_of([export.name for export in exports], platform), list(files))
    check_sources(digest)
    return library


def check_sources(digest: str) -> None:
    """Raise RuntimeError if the sources have another digest than they had."""
    if sources_digest() != digest:
        raise RuntimeError("a source file was changed while the library was built: build it again")
