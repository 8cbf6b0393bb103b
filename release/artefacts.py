# SPDX-License-Identifier: MIT
"""Builds the files of a release: packages in DIR/dist, everything else in DIR/extras."""

from __future__ import annotations

import hashlib
import lzma
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ortops.library.targets import TARGETS, WHEELS, this_machine
from release.commands import install, new_environment, run, step

SUMS = "SHA256SUMS"
CORPORA = ("core", "whole")
DIGESTS = "corpus-digests.md"


def build(sources: Path, out: Path, targets: Iterable[str]) -> None:
    """Build the files of a release in the folder `out`, from the root of the repository.

    targets: the platforms of the libraries, and of the wheels that have one. This machine's is among them.
    """
    dist, extras, targets = out / "dist", out / "extras", list(targets)
    for folder in (dist, extras):
        folder.mkdir(parents=True)
    # With zig of this environment, since any other would make the C libraries of Windows anew, which takes a minute.
    make = (sys.executable, "-m", "build", "--no-isolation", "--outdir", dist)
    with step("sdist"):
        run(*make, "--sdist", sources, cwd=out)
    (sdist,) = dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as temporary:
        with tarfile.open(sdist) as tar:
            tar.extractall(temporary, filter="data")
        (unpacked,) = Path(temporary).iterdir()
        for platform in [*(target for target in WHEELS if target in targets), "none"]:
            with step(f"wheel for {platform} from the sdist"):
                run(*make, "--wheel", unpacked, cwd=out, ORTOPS_BUILD_TARGET=platform)
    wheel = wheels(out)[this_machine()]
    with tempfile.TemporaryDirectory() as temporary:
        environment = Path(temporary, "environment")
        with step("list of the packages that an installation of the wheel has"):
            python = new_environment(environment, str(wheel))
            bom = ("--mc-type", "library", "--output-reproducible", "--output-file", extras / "ortops.cdx.json")
            project = ("--pyproject", sources / "pyproject.toml")
            run(sys.executable, "-m", "cyclonedx_py", "environment", environment, *project, *bom, cwd=out)
        install(environment, f"{wheel}[conformance]")
        digests = []
        for name in CORPORA:
            corpus = Path(temporary, f"ortops-corpus-{name}")
            shutil.copytree(sources / "LICENSES", corpus / "LICENSES")
            with step(f"corpus {name}"):
                run(python, "-m", "conformance", "export", corpus, "--corpus", name, cwd=out)
                pack(corpus, extras / archive_of(name))
            digest = hashlib.sha256((corpus / "SHA256SUMS").read_bytes()).hexdigest()
            digests.append(f"The SHA-256 sum of `SHA256SUMS` in the corpus {name}: `{digest}`\n")
        (extras / DIGESTS).write_text("\n".join(digests), "utf-8")
        for target in targets:
            with step(f"library for {target}"):
                place = ("--target", target, "--out", extras / library(target))
                run(sys.executable, "-m", "ortops.build", *place, cwd=sources)
    shutil.copy(sources / "ortops/library/ortops.h", extras)
    (extras / SUMS).write_text(sums([*dist.iterdir(), *extras.iterdir()]), "utf-8")


def wheels(out: Path) -> dict[str, Path]:
    """Return the wheels that have a library, by its platform."""
    return {target: path for target, tag in WHEELS.items() for path in (out / "dist").glob(f"*-{tag}.whl")}


def library(target: str) -> str:
    """Return the name of the library for a platform."""
    ending = TARGETS[target].ending
    return f"{'' if ending == '.dll' else 'lib'}ortops-{target}{ending}"


def archive_of(corpus: str) -> str:
    """Return the name of the archive of a corpus."""
    return f"ortops-corpus-{corpus}.tar.xz"


def pack(folder: Path, archive: Path) -> None:
    """Write a folder into an archive whose bytes depend on names and contents of the files alone."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.mtime = member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mode = 0o755 if member.isdir() else 0o644
        return member

    with lzma.open(archive, "wb", preset=9) as packed, tarfile.open(fileobj=packed, mode="w") as tar:
        tar.add(folder, folder.name, filter=plain)  # in the order of the names


def sums(files: Iterable[Path]) -> str:
    """Return a line for each file with its digest and its name, as sha256sum writes them."""
    rows = sorted((file.name, hashlib.sha256(file.read_bytes()).hexdigest()) for file in files)
    return "".join(f"{digest}  {name}\n" for name, digest in rows)
