"""The wheel: its compiled code, the processors that it is made for, and that it runs without numba."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from llvmlite import binding as llvm

from ortops.kernels.jit import build, cpu_levels, disk
from ortops.kernels.jit.kernel import Source

ROOT = Path(__file__).parents[1]
HERE = cpu_levels.LEVELS.get(cpu_levels.architecture(), {})

needs_archives = pytest.mark.skipif(
    sys.platform != "linux" or not list(cpu_levels.supported()), reason="wheels hold no code for this machine"
)


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
    """A wheel with the code for float on this processor."""
    folder = tmp_path_factory.mktemp("wheel")
    return wheel(folder, ORTOPS_BUILD_COMPILED="native", ORTOPS_BUILD_TYPES="float")


@needs_archives
def test_its_code_runs_without_numba(compiled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", tmp_path / "installed", compiled)
    (tmp_path / "numba.py").write_text("raise ImportError('there is no numba here')")
    first = os.pathsep.join([str(tmp_path), str(tmp_path / "installed")])
    environment = {"PYTHONPATH": first, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    monkeypatch.chdir(tmp_path)  # and not where the sources are
    assert str(tmp_path) in run(sys.executable, "-c", "import ortops; print(ortops.__file__)", **environment)
    run(sys.executable, "-m", "conformance", "--backend", "ortops", "--select", "*float", **environment)
    assert not (tmp_path / "cache").exists()


@needs_archives
def test_its_name_tells_the_architecture_and_no_version_of_python(compiled: Path) -> None:
    _, _, *tags = compiled.stem.split("-")
    assert tags[:2] == ["py3", "none"]
    assert tags[2].endswith(f"linux_{os.uname().machine}") or tags[2].startswith("manylinux_2_17_")
    (level, *_) = cpu_levels.supported()
    assert archives(compiled) == [f"ortops/kernels/compiled/linux-{level}.zip"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel without machine code."""
    return wheel(tmp_path_factory.mktemp("plain"))


def test_it_has_no_code_and_is_for_any_platform_unless_asked(plain: Path) -> None:
    assert plain.name.endswith("-py3-none-any.whl")
    assert archives(plain) == []
    assert "conformance/docs/conformance.md" in zipfile.ZipFile(plain).namelist()


def test_without_extras_it_imports_its_modules_and_shows_its_commands_and_judges_cases(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    run(sys.executable, "-m", "venv", "env")
    python = tmp_path / "env/bin/python"
    run(python, "-m", "pip", "install", "--quiet", plain, "pytest")
    said = run(python, ROOT / "tests/plain_installation.py")
    assert [line.split()[1] for line in said.splitlines() if line[:1].isdigit() and "in " not in line] == [
        "modules,",
        "commands",
        "backends",
    ]


def test_only_a_wheel_with_code_needs_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys, hatch_build; print(*getattr(hatch_build, f'get_requires_for_build_{sys.argv[1]}')())"

    def needs_numba(target: str) -> bool:
        return "numba" in run(sys.executable, "-c", code, target)

    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("ORTOPS_BUILD_COMPILED", "all")
    assert [needs_numba(target) for target in ("wheel", "editable", "sdist")] == [sys.platform == "linux", False, False]
    monkeypatch.delenv("ORTOPS_BUILD_COMPILED")
    assert not needs_numba("wheel")


@pytest.mark.parametrize("level", HERE)
def test_each_level_has_an_archive_also_those_that_this_processor_lacks(level: str, tmp_path: Path) -> None:
    source = Source("jit.threads", "work", "")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(build.level_archive, (tmp_path, level, (), [source])) == [source]
    with zipfile.ZipFile(tmp_path / f"{sys.platform}-{level}.zip") as archive:
        assert archive.comment == disk.sources()
        assert archive.namelist() == ["jit.threads.work()"]
        assert len(archive.read("jit.threads.work()")) > 500


def test_levels_are_not_built_where_numba_has_read_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numba", sys)
    with pytest.raises(RuntimeError, match="numba is imported already: must be imported after its target CPU is set"):
        build.level_archive(tmp_path, "x86-64-v3", (), ())


def processor(monkeypatch: pytest.MonkeyPatch, architecture: str, features: Iterable[str]) -> list[str]:
    """The levels of a processor with these features alone."""
    monkeypatch.setattr(cpu_levels, "architecture", lambda: architecture)
    monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: dict.fromkeys(features, True))
    monkeypatch.setattr(llvm, "get_host_cpu_name", lambda: "x86-64-v4")
    return list(cpu_levels.supported())


def test_a_processor_has_the_levels_whose_features_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    x86 = cpu_levels.LEVELS["x86_64"]
    v3, v4 = x86["x86-64-v3"], x86["x86-64-v4"]
    assert processor(monkeypatch, "x86_64", v4) == ["x86-64-v4", "x86-64-v3"]
    for feature in v4:
        assert processor(monkeypatch, "x86_64", {*v4} - {feature}) == (["x86-64-v3"] if feature not in v3 else [])
    assert processor(monkeypatch, "x86_64", ()) == []
    assert processor(monkeypatch, "aarch64", ["neon"]) == ["generic"]
    assert processor(monkeypatch, "aarch64", ()) == []
    assert processor(monkeypatch, "riscv64", v4) == []


def test_llvm_reports_every_feature_of_the_levels_of_this_architecture() -> None:
    assert {feature for features in HERE.values() for feature in features} <= set(llvm.get_host_cpu_features())
