# SPDX-License-Identifier: MIT
"""Tries the files of a release in new environments that have nothing else, outside of the repository."""

from __future__ import annotations

import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

import onnx_models
from ortops.library.targets import this_machine
from release.artefacts import SUMS, archive_of, library, sums, wheels
from release.commands import new_environment, run, step
from release.hosts import EMULATORS, try_host

HOST = """
import sys
import numpy as np
import onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(sys.argv[1])
session = onnxruntime.InferenceSession("model.onnx", options)
x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
(y,) = session.run(None, {"X": x, "rois": np.float32([[0, 0, 3, 3]]), "batch_indices": [0]})
assert y.ravel().tolist() == [1.5625, 3, 7.3125, 8.75], y
"""
"""A host that has only onnxruntime, and a library."""


VERSIONS = ("3.11", "3.12", "3.13", "3.14")
"""The versions of Python that wheels are for."""


def pythons_here(given: Sequence[str] = ()) -> dict[str, str]:
    """Return the Pythons of `VERSIONS` in PATH, and those that are given, by their versions."""
    code, pythons = "import sys; print('%d.%d' % sys.version_info[:2])", dict[str, str]()
    for python in (*(f"python{version}" for version in VERSIONS), sys.executable, *given):
        try:
            version = run(python, "-c", code, cwd=Path.cwd())
        except (OSError, click.ClickException):
            if python in given:
                raise
        else:
            pythons[version.strip()] = python
    return pythons


def try_all(sources: Path, out: Path, pythons: Mapping[str, str]) -> list[str]:
    """Try each file of a release that this machine can run, and return what it cannot run, with the reason.

    Args:
        sources: the root of the repository, of which the README and examples/read_corpus.py are read.
        out: the folder of the files.
        pythons: Pythons to try the wheel in, by their versions.
    """
    extras = out / "extras"
    if (extras / SUMS).read_text("utf-8") != sums(
        file for file in [*(out / "dist").iterdir(), *extras.iterdir()] if file.name != SUMS
    ):
        raise click.ClickException(f"{extras / SUMS} has other sums than the files")
    (sdist,) = (out / "dist").glob("*.tar.gz")
    example, wheel = program((sources / "README.md").read_text("utf-8")), wheels(out)[this_machine()]
    installed = {f"the wheel in Python {version}": (wheel, base) for version, base in pythons.items()}
    for name, (file, base) in {"the sdist": (sdist, sys.executable), **installed}.items():
        with step(f"README's blocks of Python from {name}") as folder:
            python = new_environment(folder / "environment", str(file), base=base)
            run_program(folder, python, example)
    with step(f"library for {this_machine()} with nothing but onnxruntime") as folder:
        model = onnx_models.roi_align(16, output_height=2, output_width=2)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        python = new_environment(folder / "environment", "onnxruntime")
        run_program(folder, python, HOST, str(extras / library(this_machine())))
    with step("corpus core with nothing but onnxruntime") as folder:
        with tarfile.open(extras / archive_of("core")) as tar:
            tar.extractall(folder, filter="data")
        python = new_environment(folder / "environment", "onnxruntime")
        counts = run(python, sources / "examples/read_corpus.py", folder / "ortops-corpus-core", cwd=folder)
        if not re.search(r"^\d+ answered$", counts, re.MULTILINE):
            raise click.ClickException(f"ONNX Runtime answers no case of the corpus:\n{counts}")
        click.echo(counts.rstrip())
    missing = [f"the wheel in Python {version}: it is not installed" for version in VERSIONS if version not in pythons]
    return [*missing, *_try_others(out)]


def _try_others(out: Path) -> Iterator[str]:
    """Try the libraries in the wheels for other platforms; yield what cannot be tried."""
    for target, wheel in wheels(out).items():
        if target == this_machine():
            continue
        if target not in EMULATORS:
            yield f"the wheel for {target}: there is nothing that emulates it"
            continue
        with step(f"library of the wheel for {target} in a host") as folder, zipfile.ZipFile(wheel) as files:
            (name,) = (name for name in files.namelist() if name.startswith("ortops/built/"))
            if why := try_host(target, Path(files.extract(name, folder))):
                yield f"the wheel for {target}: {why}"


def program(document: str) -> str:
    """Return the blocks of Python in a document as a program, without those that begin with the name of a file."""
    blocks = re.findall(r"^```python\n(?!# [\w.]+$)(.*?)^```$", document, re.MULTILINE | re.DOTALL)
    if not blocks:
        raise click.ClickException("README.md has no block of Python")
    return "\n".join(blocks)


def run_program(folder: Path, python: Path, text: str, *arguments: str) -> None:
    """Run a program in a folder, with no machine code that was compiled before."""
    (folder / "program.py").write_text(text, "utf-8")
    run(python, "program.py", *arguments, cwd=folder, NUMBA_CACHE_DIR=str(folder / "cache"))
