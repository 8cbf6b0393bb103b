"""Compiled code on disk: what is read back, what is compiled anew, and whose folders are trusted."""

from __future__ import annotations

import importlib
import os
import pickle
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite
import numba
import pytest
from numba.core import event
from numba.core.codegen import CPUCodegen
from ortops.kernels.compile import cached

from ortops.kernels import disk

if os.name == "nt":
    pytest.skip("folders have other owners and rights on Windows", allow_module_level=True)


class Compilations(event.Listener):  # type: ignore[misc]
    """Counts what numba compiles."""

    count = 0

    def on_start(self, event: Any) -> None:  # noqa: ARG002 - numba's interface
        self.count += 1

    def on_end(self, event: Any) -> None:
        pass


class Module:
    """A source file with a function, and what each new process makes of it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "source" / "tiny.py"
        self.path.parent.mkdir()
        self.says("2 * x")

    def says(self, result: str) -> None:
        self.path.write_text(f"def f(x):\n    return {result}\n")

    def new_process(self) -> Any:
        """The function as a process sees it that starts now."""
        disk._sources.cache_clear()  # noqa: SLF001 - a new process has none
        sys.modules.pop("tiny", None)
        return cached(importlib.import_module("tiny").f)

    def compilations(self, argument: Any = 1) -> int:
        """How many functions a new process compiles for its first call."""
        listener = Compilations()
        f = self.new_process()
        with event.install_listener("numba:compile", listener):
            assert f(argument) == eval(self.path.read_text().split("return")[1], {"x": argument})  # noqa: S307
        return listener.count


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Module:
    """A module whose code can be kept in no folder of the machine's but in those below tmp_path."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "shared"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(tmp_path / "source")
    (tmp_path / "shared").mkdir()
    return Module(tmp_path)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "tiny.py")


def shut(folder: Path) -> None:
    """Let nobody write below a folder, not even root."""
    folder.rmdir() if folder.exists() else None
    folder.write_bytes(b"")


def test_the_next_process_reads_what_one_has_compiled(module: Module, tmp_path: Path) -> None:
    assert module.compilations() == 1
    assert module.compilations() == 0
    assert [path.parent for path in files(tmp_path)] == [module.path.parent / "__pycache__"]


def test_every_signature_is_a_file(module: Module, tmp_path: Path) -> None:
    assert module.compilations(1) + module.compilations(1.5) == 2
    assert module.compilations(1) + module.compilations(1.5) == 0
    assert len(files(tmp_path)) == 2


def test_a_changed_source_is_compiled_anew_in_the_place_of_the_old(module: Module, tmp_path: Path) -> None:
    assert module.compilations() == 1
    module.says("3 * x")
    assert module.compilations() == 1
    assert module.compilations() == 0
    assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("package", [numba, llvmlite])
def test_code_of_another_compiler_is_compiled_anew(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: Any
) -> None:
    assert module.compilations() == 1
    monkeypatch.setattr(package, "__version__", "0.1")
    assert module.compilations() == 1
    assert len(files(tmp_path)) == 1


def test_code_for_another_processor_is_kept_beside(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.compilations() == 1
    monkeypatch.setattr(CPUCodegen, "magic_tuple", lambda _: ("another",))
    assert module.compilations() == 1
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda _: b"",
        lambda content: content[:20],
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: bytes(len(content)),
    ],
    ids=["empty", "short", "half", "one bit", "zeros"],
)
def test_a_damaged_file_is_compiled_anew_and_mended(
    module: Module, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    assert module.compilations() == 1
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert module.compilations() == 1
    assert module.compilations() == 0


def test_code_that_cannot_be_loaded_here_is_compiled_anew(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    assert module.compilations() == 1

    def fail(_: bytes) -> Any:
        raise ModuleNotFoundError("numpy._elsewhere")

    monkeypatch.setattr(pickle, "loads", fail)
    assert module.compilations() == 1


def test_a_full_disk_leaves_nothing_behind(module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    assert module.compilations() == 1
    assert files(tmp_path) == []


def test_a_read_only_installation_keeps_its_code_and_new_code_goes_to_the_user(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.compilations(1) == 1
    write = disk._write  # noqa: SLF001 - root can write to any folder that is only marked as read-only

    def refuse(path: Path, content: bytes) -> None:
        if path.parent.name == "__pycache__":
            raise PermissionError("Read-only file system")
        write(path, content)

    monkeypatch.setattr(disk, "_write", refuse)
    assert module.compilations(1) == 0
    assert module.compilations(1.5) == 1
    assert module.compilations(1.5) == 0
    assert len(files(tmp_path / "user" / "ortops")) == 1
    assert (tmp_path / "user" / "ortops").stat().st_mode & 0o777 == 0o700


def test_without_a_home_the_code_goes_to_a_private_folder_for_temporary_files(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_: int) -> Any:
        raise KeyError("getpwuid(): uid not found")

    shut(module.path.parent / "__pycache__")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.chdir(tmp_path)
    assert module.compilations() == 1
    assert module.compilations() == 0
    own = tmp_path / "shared" / f"ortops-{os.geteuid()}"
    assert own.stat().st_mode & 0o777 == 0o700
    assert len(files(own)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared", "source"]


def test_where_no_folder_can_be_written_each_process_compiles(module: Module, tmp_path: Path) -> None:
    for folder in (module.path.parent / "__pycache__", tmp_path / "user", tmp_path / "shared"):
        shut(folder)
    assert module.compilations() == 1
    assert module.compilations() == 1


def test_no_folder_for_temporary_files_is_no_error(module: Module, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", fail)
    shut(module.path.parent / "__pycache__")
    assert module.compilations() == 1
    assert module.compilations() == 0


def test_the_folder_that_is_named_is_the_only_one(
    module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert module.compilations() == 1
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path / "named"))
    assert module.compilations() == 1
    assert module.compilations() == 0
    assert len(files(tmp_path / "named")) == 1


@pytest.fixture
def filled(module: Module, tmp_path: Path) -> Path:
    """The temporary folder of the user, the only one that can be written, with the code of the module in it."""
    shut(module.path.parent / "__pycache__")
    shut(tmp_path / "user")
    assert module.compilations() == 1
    assert module.compilations() == 0
    return tmp_path / "shared" / f"ortops-{os.geteuid()}"


@pytest.mark.parametrize("mode", [0o701, 0o710, 0o704, 0o720, 0o777])
def test_a_temporary_folder_that_others_may_enter_is_neither_read_nor_written(
    module: Module, filled: Path, mode: int
) -> None:
    filled.chmod(mode)
    before = {path: path.stat().st_mtime_ns for path in files(filled)}
    assert module.compilations() == 1
    assert module.compilations(1.5) == 1
    assert {path: path.stat().st_mtime_ns for path in files(filled)} == before


def test_a_temporary_folder_that_is_a_link_is_not_read(module: Module, filled: Path) -> None:
    target = filled.rename(filled.with_name("elsewhere"))
    filled.symlink_to(target)
    assert module.compilations() == 1


def test_a_temporary_folder_of_another_user_is_not_read(
    module: Module, filled: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    filled.rename(filled.with_name(f"ortops-{other}"))
    assert module.compilations() == 1


@pytest.mark.parametrize("mode", [0o720, 0o702])
def test_a_folder_of_the_user_that_others_may_write_is_not_read(module: Module, tmp_path: Path, mode: int) -> None:
    shut(module.path.parent / "__pycache__")
    shut(tmp_path / "shared")
    assert module.compilations() == 1
    assert module.compilations() == 0
    (tmp_path / "user" / "ortops").chmod(mode)
    assert module.compilations() == 1


def test_the_home_of_another_user_is_not_used(module: Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shut(module.path.parent / "__pycache__")
    shut(tmp_path / "shared")
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert module.compilations() == 1
    assert not (tmp_path / "user").exists()


def test_processes_that_fill_an_empty_folder_at_once_do_not_mix_their_code(tmp_path: Path) -> None:
    path = tmp_path / "tiny.py"
    path.write_text(
        "import sys\n"
        "from ortops.kernels.compile import cached\n"
        "@cached\n"
        "def f(x):\n"
        "    return 2 * x\n"
        "print(f(eval(sys.argv[1])), sum(f.stats.cache_misses.values()))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "named")}

    def run(*arguments: str) -> list[str]:
        started = [
            subprocess.Popen([sys.executable, str(path), one], env=environment, stdout=subprocess.PIPE, text=True)  # noqa: S603
            for one in arguments
        ]
        return [process.communicate(timeout=120)[0].strip() for process in started]

    assert [line.split()[0] for line in run("1", "1.5", "1")] == ["2", "3.0", "2"]
    assert run("1", "1.5") == ["2 0", "3.0 0"]
