# SPDX-License-Identifier: MIT
"""The wheel: the library and the documents that it has, and that it is the same wherever it is built."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import hatch_build
from ortops import runtime
from ortops.compiler.machine_code import Source
from ortops.library.targets import TARGETS, WHEELS

ROOT = Path(__file__).parents[1]

builds = pytest.mark.skipif(sys.platform != "linux", reason="wheels are built on Linux")

pytestmark = pytest.mark.slow


def run(*command: str | Path, **environment: str) -> str:
    """What a command prints."""
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wheel(folder: Path, target: str) -> Path:
    """A wheel of this package, for a target of ORTOPS_BUILD_TARGET."""
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(*pip, ROOT, ORTOPS_BUILD_TARGET=target)
    (path,) = folder.glob("*.whl")
    return path


def libraries(path: Path) -> dict[str, bytes]:
    """The files of a wheel that have the folder of the library, by their names."""
    with zipfile.ZipFile(path) as files:
        names = [name for name in files.namelist() if name.startswith("ortops/built/")]
        return {name.removeprefix("ortops/built/"): files.read(name) for name in names}


# The weekly ones link as x86_64-linux and x86_64-windows do; test_library links a part of each for each commit.
@builds
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=[pytest.mark.weekly] * name.startswith("aarch64")) for name in WHEELS]
)
def test_it_has_the_library_of_its_sources_for_its_platform(tmp_path: Path, target: str) -> None:
    made = wheel(tmp_path, target)
    assert made.name.endswith(f"-py3-none-{WHEELS[target]}.whl")
    ((name, code),) = libraries(made).items()
    assert name == f"ortops-{runtime.sources_digest()}{TARGETS[target].ending}"
    assert b"RegisterCustomOps\0" in code
    with zipfile.ZipFile(made) as files:
        (about,) = (name for name in files.namelist() if name.endswith(".dist-info/WHEEL"))
        assert b"Root-Is-Purelib: false" in files.read(about)
    assert made.stat().st_size < 2_050_000
    if target.endswith("-linux"):  # no later C library than the wheel says
        versions = {tuple(map(int, version.split(b"."))) for version in re.findall(rb"GLIBC_([\d.]+)", code)}
        assert versions
        assert max(versions) <= (2, 17)


@builds
def test_unless_asked_it_is_for_the_platform_that_builds_it(tmp_path: Path) -> None:
    made = wheel(tmp_path, "")
    assert made.name.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}.whl")
    assert libraries(made)


def compiled_anew(source: Source) -> bytes:
    from ortops.library.objects import _compile_bitcode

    return _compile_bitcode(source)


@builds
def test_bitcode_does_not_depend_on_the_process_and_what_it_has_compiled_before() -> None:
    sources = [Source("native.tasks", "run_on_threads", ""), Source("native.kernels.gather", "gather", "")]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as first, context.Pool(1) as second:
        made = [pool.map(compiled_anew, order, 1) for pool, order in ((first, sources), (second, sources[::-1]))]
    assert made[0] == made[1][::-1]


@pytest.mark.parametrize(
    ("target", "has_compiler", "needed"),
    [
        ("none", True, set()),
        ("", True, {"numba", "numpy", "onnx"}),
        ("", False, {"numba", "numpy", "onnx", "ziglang"}),
        ("aarch64-macos", True, {"numba", "numpy", "onnx", "ziglang"}),
    ],
)
def test_its_build_needs_what_compiles_and_zig_where_nothing_else_links(
    monkeypatch: pytest.MonkeyPatch, target: str, has_compiler: bool, needed: set[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(hatch_build.VARIABLE, target)
    if not has_compiler:
        monkeypatch.setenv("PATH", "")
    found = {re.split(r"\W", requirement)[0] for requirement in hatch_build.get_requires_for_build_wheel()}
    assert found >= needed
    assert not found & ({"numba", "ziglang", "onnxruntime", "ortops"} - needed)


def test_an_unknown_platform_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ORTOPS_BUILD_TARGET = 'mips': must be none or one of x86_64-linux, "):
        wheel(tmp_path, "mips")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without a library."""
    return wheel(tmp_path_factory.mktemp("plain"), "none")


def test_without_a_library_it_is_for_any_platform(plain: Path) -> None:
    assert plain.name.endswith("-py3-none-any.whl")
    assert libraries(plain) == {}
    assert "conformance/docs/conformance.md" in zipfile.ZipFile(plain).namelist()


def test_it_and_the_sdist_are_the_same_made_again_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, made = ROOT, list[dict[str, bytes]]()
    for name in ("first", "second"):
        monkeypatch.chdir(folder)
        run(sys.executable, "-m", "hatchling", "build", "--directory", tmp_path / name, PYTHONPATH=str(folder))
        made.append({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()})
        with tarfile.open(next((tmp_path / name).glob("*.tar.gz"))) as sdist:
            sdist.extractall(tmp_path, filter="data")
        folder = next(tmp_path.glob("ortops-*"))
        (folder / "PKG-INFO").unlink()
        for path in folder.rglob("*"):
            path.touch()
    assert len(made[0]) == 2
    assert made[0] == made[1]


def test_without_extras_it_imports_its_modules_and_shows_its_commands_and_judges_cases(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    run(sys.executable, "-m", "venv", "--without-pip", "env")
    (packages,) = tmp_path.glob("env/lib/python*/site-packages")
    # Few of the modules that are installed are imported, and Python compiles those.
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--target", packages, plain, "pytest")
    said = run(tmp_path / "env/bin/python", ROOT / "tests/plain_installation.py")
    assert [line.split()[1] for line in said.splitlines() if line[:1].isdigit() and "in " not in line] == [
        "modules,",
        "commands",
        "backends",
    ]
