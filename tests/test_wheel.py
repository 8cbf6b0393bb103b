"""The wheel: its compiled code, that every processor's machine code can be made of it, and that it runs without numba."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from llvmlite import binding as llvm

from ortops.jit import disk, machine_code
from ortops.jit.source import Source
from ortops.library.targets import STANDARD_OPSETS
from ortops.parallel_warmup import ENTRY_POINTS

ARCHIVE = "ortops/kernels/compiled/kernels.zip"
ROOT = Path(__file__).parents[1]
C_LIBRARY = {
    "calloc",
    "cos",
    "free",
    "malloc",
    "memcpy",
    "memmove",
    "memset",
    "pause",
    "pthread_create",
    "pthread_join",
}
C_LIBRARY |= {"sin", "snprintf", "strncat", "strlen", "strtod"}

builds = pytest.mark.skipif(sys.platform != "linux", reason="wheels are compiled on Linux")


def run(*command: str | Path, **environment: str) -> str:
    """What a command prints."""
    done = subprocess.run(  # noqa: S603
        command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, **environment}
    )
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def wheel(folder: Path, **environment: str) -> Path:
    """A wheel of this package."""
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(*pip, ROOT, **environment)
    (path,) = folder.glob("*.whl")
    return path


def archives(path: Path) -> list[str]:
    return [name for name in zipfile.ZipFile(path).namelist() if name.startswith("ortops/kernels/compiled/")]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the code for float."""
    folder = tmp_path_factory.mktemp("wheel")
    return wheel(folder, ORTOPS_BUILD_COMPILED="1", ORTOPS_BUILD_TYPES="float")


@builds
def test_its_code_runs_without_numba(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "installed", compiled)
    (tmp_path / "numba.py").write_text("raise ImportError('there is no numba here')")
    first = os.pathsep.join([str(tmp_path), str(tmp_path / "installed")])
    environment = {"PYTHONPATH": first, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    monkeypatch.chdir(tmp_path)  # and not where the sources are
    assert str(tmp_path) in run(sys.executable, "-c", "import ortops; print(ortops.__file__)", **environment)
    run(sys.executable, "-c", "import ortops; ortops.warmup()", **environment)
    run(sys.executable, "-m", "conformance", "--backend", "ortops", "--select", "*/official/*float", **environment)
    assert list((tmp_path / "cache").rglob("*.o"))


@builds
@pytest.mark.parametrize(
    ("triple", "processor", "features"),
    [
        ("x86_64-unknown-linux-gnu", "x86-64-v3", ""),
        ("x86_64-unknown-linux-gnu", "x86-64-v4", ""),
        ("x86_64-pc-windows-msvc", "haswell", ""),
        ("aarch64-unknown-linux-gnu", "generic", "+neon"),
        ("arm64-apple-darwin", "apple-m1", ""),
    ],
)
def test_its_code_is_for_the_processors_of_every_platform(
    compiled: Path, triple: str, processor: str, features: str
) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple(triple).create_target_machine(cpu=processor, features=features, jit=True)
    with zipfile.ZipFile(zipfile.ZipFile(compiled).open(ARCHIVE)) as archive:
        names = [name for name in archive.namelist() if name != disk.DEFINITIONS]
        modules = [llvm.parse_bitcode(archive.read(name)) for name in names]
    assert len(names) > 20
    for name, module in zip(names, modules, strict=True):
        declared = {one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")}
        assert declared <= {*C_LIBRARY, *machine_code.PYTHON_FUNCTIONS}, name
        module.triple, module.data_layout = triple, str(target.target_data)
        assembly = target.emit_assembly(module)
        assert machine_code.SYMBOL in assembly
        assert not re.search(r"fmaf?\b.*@PLT|hfsf|h2f|call.*\bfmaf?$", assembly), name


@builds
def test_its_name_tells_no_platform(compiled: Path) -> None:
    assert compiled.name.endswith("-py3-none-any.whl")
    assert archives(compiled) == [ARCHIVE]


def compiled_anew(source: Source) -> bytes:
    from ortops.jit.compile import bitcode

    return bytes(bitcode(source))


@builds
def test_bitcode_does_not_depend_on_what_a_process_has_compiled_before() -> None:
    work, describe = (source for source in ENTRY_POINTS if source.function in ("work", "describe"))
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as first, context.Pool(1) as second:
        made = [
            pool.map(compiled_anew, order, 1) for pool, order in ((first, [work, describe]), (second, [describe, work]))
        ]
    assert made[0] == made[1][::-1]


@builds
def test_one_for_windows_has_the_libraries_of_its_sessions(tmp_path: Path) -> None:
    made = wheel(tmp_path, ORTOPS_BUILD_LIBRARY="x86_64-windows", ORTOPS_BUILD_TYPES="float", ORTOPS_BUILD_COMPILED="0")
    assert made.name.endswith("-py3-none-win_amd64.whl")
    files = zipfile.ZipFile(made)
    libraries = {path.name: path.read_bytes() for path in zipfile.Path(files, "ortops/library/built/").iterdir()}
    assert set(libraries) == {"ortops.dll", *(f"ortops-onnx{opset}.dll" for opset in STANDARD_OPSETS)}
    for code in libraries.values():
        assert code.startswith(b"MZ")
        assert b"RegisterCustomOps\0" in code
    (about,) = (name for name in files.namelist() if name.endswith(".dist-info/WHEEL"))
    assert b"Root-Is-Purelib: false" in files.read(about)


def test_libraries_for_an_unknown_platform_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        AssertionError, match="ORTOPS_BUILD_LIBRARY = 'mips': must be one of x86_64-windows, aarch64-win"
    ):
        wheel(tmp_path, ORTOPS_BUILD_LIBRARY="mips")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without machine code."""
    return wheel(tmp_path_factory.mktemp("plain"))


def test_it_has_no_code_and_is_for_any_platform_unless_asked(plain: Path) -> None:
    assert plain.name.endswith("-py3-none-any.whl")
    assert archives(plain) == []
    assert "conformance/docs/conformance.md" in zipfile.ZipFile(plain).namelist()


def test_it_and_the_sdist_are_the_same_made_again_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORTOPS_BUILD_COMPILED", raising=False)
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
