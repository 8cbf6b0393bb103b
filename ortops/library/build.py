"""Builds a library: compiles, emits and links."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from ortops.library.entries import module_of
from ortops.library.linking import link, linker_of
from ortops.library.objects import Export, compile_for, emit_records, machine_of, sources_of
from ortops.library.targets import TARGETS
from ortops.parallel_warmup import in_processes
from ortops.progress import with_progress


def build(exports: Sequence[Export], out: Path, target: str, cpu: str | None = None) -> None:
    """Write a shared library with these functions.

    Args:
        exports: the functions.
        out: the file to write.
        target: one of `TARGETS`.
        cpu: LLVM's name of the only processor to have code for.

    Raises:
        ValueError: there is no such processor, or it lacks instructions that kernels need.
        RuntimeError: there is nothing to link with, or it fails.
        OSError: the file cannot be written.
    """
    platform = TARGETS[target]
    if cpu is not None:
        platform = platform._replace(cpus=(cpu,))
    for one in platform.cpus:
        machine_of(platform.triple, one)
    linker_of(target)
    objects = emit_records(platform, exports)
    sources = sources_of(exports)
    made = in_processes(sources, functools.partial(compile_for, platform))
    for _, _, codes in with_progress(made, "compiling", len(sources), unit="functions"):
        objects += codes
    link(target, module_of([export.name for export in exports], platform), objects, out)
