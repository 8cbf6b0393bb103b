"""Build the archive of compiled kernels for a wheel: `python -m ortops.kernels.jit.build FILE`.

The archive holds optimised LLVM bitcode. The first call of a kernel emits machine code for the processor that it runs on, so
that one archive serves every platform.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import click

from ortops.kernels.jit import definitions, disk
from ortops.kernels.jit.kernel import Source

TYPES = ("float16", "bfloat16", "float", "double")

TARGETS = {"x86_64": {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "+avx2,+bmi2,+f16c,+fma"}}
"""Numba's options on architectures whose oldest processors lack a fused multiply-add or float16 (`cpu_features.py`)."""


def write(path: Path, bitcode_by_name: dict[str, bytes]) -> None:
    """Write an archive: the same bitcode makes the same bytes."""
    members = bitcode_by_name | {disk.DEFINITIONS: json.dumps(definitions.digests(disk.PACKAGE)).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = disk.archive_comment()
        for name, content in sorted(members.items()):
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)  # ZipInfo has a fixed date


@click.command(help=__doc__)
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--type", "types", multiple=True, default=TYPES, type=click.Choice(TYPES), help="Element types. [default: all]"
)
def main(path: Path, types: Sequence[str]) -> None:
    """Compile all kernels for the element types."""
    from ortops.operators import BY_NAME
    from ortops.parallel_warmup import in_processes, needed

    for name, _ in disk.numba_options():
        del os.environ[name]
    os.environ |= TARGETS.get(platform.machine(), {})  # of the processes that compile
    sources, made = needed(BY_NAME, types), {}
    for source, seconds, code in in_processes(sources, Source.bitcode):
        made[disk.member_name(source.name, source.arg_types)] = code
        kind = source.arguments if isinstance(source.arguments, str) else ""
        sys.stderr.write(
            f"{len(made)} of {len(sources)}: {' '.join(filter(None, (source.name, kind)))}, {seconds:.1f} s\n"
        )
    write(path, made)


if __name__ == "__main__":
    main()
