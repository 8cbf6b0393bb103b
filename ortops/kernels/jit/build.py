"""Build the archives of compiled kernels for a wheel: `python -m ortops.kernels.jit.build FOLDER`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from ortops.kernels.jit import cpu_levels, disk, kernel
from ortops.kernels.jit.kernel import Source

TYPES = ("float16", "bfloat16", "float", "double")


def build(folder: Path, chosen: Iterable[str], types: Sequence[str]) -> None:
    """Write an archive for each CPU level, with all kernels that these element types need.

    Running every operator finds the kernels. For levels that this CPU does not support they are compiled and not run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    here, chosen = set(cpu_levels.supported()), list(chosen)
    runnable = [level for level in chosen if level in here]
    with multiprocessing.get_context("spawn").Pool(2, maxtasksperchild=1) as pool:
        needed, *_ = pool.starmap(level_archive, [(folder, level, types, ()) for level in runnable or [""]], 1)
        pool.starmap(level_archive, [(folder, level, types, needed) for level in chosen if level not in here], 1)


def level_archive(folder: Path, level: str, types: Sequence[str], needed: Iterable[Source]) -> list[Source]:
    """Write the archive for one level and return its kernels. The level "" writes none.

    Needs a process of its own, since numba reads its target CPU only once.

    Args:
        needed: the kernels to compile; if empty, those that running every operator on these types loads.

    Raises:
        RuntimeError: the process has already imported numba.
    """
    if "numba" in sys.modules:
        raise RuntimeError("numba is imported already: must be imported after its target CPU is set")
    for name, _ in disk.numba_options():
        del os.environ[name]
    if level:
        os.environ["NUMBA_CPU_NAME"] = level
        os.environ["NUMBA_CPU_FEATURES"] = ",".join(
            f"+{name}" for name in cpu_levels.LEVELS[cpu_levels.architecture()][level]
        )
    with tempfile.TemporaryDirectory() as cache:
        os.environ["NUMBA_CACHE_DIR"] = cache
        sources = list(needed) or _run_all(types)
        if level:
            _write(folder / disk.archive_name(level), sources)
    return sources


def _write(path: Path, sources: Iterable[Source]) -> None:
    by_name = {disk.member_name(source.name, source.arg_types): source for source in sources}
    with zipfile.ZipFile(path, "w") as archive:
        archive.comment = disk.sources()
        for name, source in sorted(by_name.items()):
            # ZipInfo has a fixed date: the same code makes the same archive.
            archive.writestr(zipfile.ZipInfo(name), source.code(), zipfile.ZIP_DEFLATED)


def _run_all(types: Sequence[str]) -> list[Source]:
    """Run every operator on these element types; the kernels that this loaded."""
    import ortops

    ortops.warmup(types=types)
    return kernel.loaded


def main() -> None:
    """Build the archives for the levels and element types on the command line."""
    known = cpu_levels.LEVELS.get(cpu_levels.architecture(), {})
    parser = argparse.ArgumentParser(prog="python -m ortops.kernels.jit.build", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--level",
        action="append",
        choices=[*known, "native"],
        help="a CPU level; native: the best one of this machine (default: all)",
    )
    parser.add_argument("--type", action="append", choices=TYPES, help="an element type (default: all)")
    arguments = parser.parse_args()
    native = list(cpu_levels.supported())[:1]
    chosen = {name: None for level in arguments.level or known for name in (native if level == "native" else [level])}
    if chosen:
        build(arguments.folder, chosen, arguments.type or TYPES)


if __name__ == "__main__":
    main()
