"""Builds a library: compiles, emits and links."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from ortops import atomic_file
from ortops.library.entries import module_of
from ortops.library.linking import link, linker_of
from ortops.library.objects import Export, check, compile_for, emit_records, sources_of
from ortops.library.operators import REGISTER, record_of
from ortops.library.targets import STANDARD_OPSETS, TARGETS, this_machine
from ortops.parallel_warmup import in_processes
from ortops.precompile import checked_types, operators_named
from ortops.progress import with_progress
from ortops.spec import Operator
from ortops.standard import implementation, standard_operators


def build_library(
    out: str | os.PathLike[str],
    operators: Iterable[str] | None = None,
    types: Iterable[str] | None = None,
    *,
    target: str | None = None,
    cpu: str | None = None,
    standard: int | None = None,
) -> None:
    """Write a shared library of operators, which ONNX Runtime loads without Python.

    Its functions are RegisterCustomOps, RegisterOnnx10, RegisterOnnx16 and RegisterOnnx22; docs/library.md tells how hosts
    call them. What is compiled is kept on disk, as by `warmup`; the first library takes a minute.

    Args:
        out: the file to write.
        operators: names of operators; None for all.
        types: element types, out of "float16", "bfloat16", "float" and "double"; None for all.
        target: the platform, such as "aarch64-linux"; None for this machine. Another one needs the extra `library`.
        cpu: LLVM's name of the only processor to compile for, such as "znver5". With None, a library for x86-64 has code for
            x86-64-v3 and for x86-64-v4, and takes what the processor can run.
        standard: the opset, 10, 16 or 22, whose definitions of ONNX's own operators RegisterCustomOps puts in the place of
            those of ONNX Runtime; None if it adds the operators of this project's domain.

    Raises:
        ValueError: an operator, type, target, processor or opset is unknown, or the processor lacks instructions for fused
            multiply-add or for float16.
        TypeError: `operators` or `types` is a string.
        RuntimeError: there is nothing to link with, or it fails.
        OSError: the file cannot be written.
    """
    target = this_machine() if target is None else target
    if target not in TARGETS:
        raise ValueError(f"target = {target!r}: must be one of {', '.join(TARGETS)}")
    if standard not in (None, *STANDARD_OPSETS):
        raise ValueError(f"standard = {standard!r}: must be one of {', '.join(map(str, STANDARD_OPSETS))}")
    chosen = operators_named(operators)
    link_exports(exports_of(chosen, checked_types(chosen, types), standard), Path(out), target, cpu)


def exports_of(operators: Sequence[Operator], types: Sequence[str], standard: int | None = None) -> list[Export]:
    """The functions of a library; see `build_library`."""
    records = {}
    for opset in STANDARD_OPSETS:
        named = [one for one in standard_operators(opset) if implementation(one.name, opset) in operators]
        if named:
            records[opset] = record_of(f"onnx_{opset}", named, types)
    if standard is not None and standard not in records:
        raise ValueError(f"standard = {standard}: the operators have none of ONNX's at this opset")
    own = record_of("ortops", operators, types) if standard is None else records[standard]
    return [
        Export("RegisterCustomOps", REGISTER, own),
        *(Export(f"RegisterOnnx{opset}", REGISTER, record) for opset, record in records.items()),
    ]


def link_exports(exports: Sequence[Export], out: Path, target: str, cpu: str | None = None) -> None:
    """Write a shared library with these functions; see `build_library`."""
    platform = TARGETS[target]
    if cpu is not None:
        platform = platform._replace(cpus=(cpu,))
        check(platform)
    linker_of(target)
    atomic_file.check(out)
    records, sources = emit_records(platform, exports), sources_of(exports)
    compiled = in_processes(sources, functools.partial(compile_for, platform))
    made = {source: codes for source, _, codes in with_progress(compiled, "compiling", len(sources), unit="functions")}
    objects = itertools.chain(records, *(made[source] for source in sources))  # in an order that is always the same
    link(target, module_of([export.name for export in exports], platform), list(objects), out)
