# SPDX-License-Identifier: MIT
"""The command that builds the package's library: what it builds and when, and what it leaves when it is stopped."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import ortops.build
import ortops.runtime
from ortops.compiler import c_compiler
from ortops.compiler.machine_code import Source
from ortops.library import content, objects
from ortops.library.processes import in_processes
from ortops.library.targets import this_machine
from ortops.operators import BY_NAME
from processes import python

posix = pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the library, which there is not yet. Its content would be b"library"."""
    folder = tmp_path / "built"
    monkeypatch.setattr(ortops.runtime, "BUILT", folder)
    monkeypatch.setattr(ortops.build, "BUILT", folder)
    monkeypatch.setattr(ortops.build, "_library", lambda *_: b"library")
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(ortops.build.main, arguments)


def libraries(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name != ".lock"]


def test_it_writes_the_library_that_processes_load_once(built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It removes libraries of other sources, and parts of files."""
    built.mkdir()
    for name in ("ortops-0123456789abcdef.so", f".{'0f' * 16}.part"):
        (built / name).write_bytes(b"")
    assert ortops.runtime.library_file() is None
    assert run().exit_code == 0
    monkeypatch.setattr(ortops.build, "_library", None)
    assert run().exit_code == 0
    assert libraries(built) == [ortops.runtime.library_file()]
    assert libraries(built)[0].read_bytes() == b"library"
    monkeypatch.setattr(ortops.runtime, "sources_digest", lambda: "0123456789abcdef")
    assert ortops.runtime.library_file() is None


def test_each_source_that_decides_the_library_decides_its_name() -> None:
    loaded = python(
        "import sys, importlib, ortops.library.content; from ortops.operators import OPERATORS\n"
        "exports = ortops.library.content.exports_of(OPERATORS, ['float'])\n"
        "for source in ortops.library.content.sources_of(exports): importlib.import_module(f'ortops.{source.module}')\n"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.split('.')[0] == 'ortops'), sep='\\n')"
    )
    files = {Path(line).relative_to(ortops.runtime.PACKAGE).as_posix() for line in loaded.splitlines()}
    undecided = {
        "__init__.py",
        "atomic_file.py",
        "compute.py",
        "extras.py",
        "foreign/__init__.py",
        "memory.py",
        "progress.py",
        "runtime.py",
    }
    undecided |= {name for name in files if name.startswith("functional/")}
    assert files - undecided <= {*ortops.runtime.source_files()}


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "cannot be written: No space left on device"),
        (RuntimeError("there is no linker"), "there is no linker"),
        (ModuleNotFoundError("No module", name="numba"), "No module"),
    ],
)
def test_what_fails_is_said_and_leaves_nothing(
    built: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    def fail(*_: object) -> bytes:
        raise error

    monkeypatch.setattr(ortops.build, "_library", fail)
    result = run()
    assert result.exit_code == 1
    assert says in result.output
    assert libraries(built) == []


def test_a_folder_that_cannot_be_written_is_named(built: Path) -> None:
    built.write_bytes(b"")
    result = run()
    assert result.exit_code == 1
    assert f"{built} cannot be written: " in result.output


def test_another_platform_needs_a_file() -> None:
    result = run("--target", "aarch64-linux")
    assert result.exit_code == 2
    assert "--target: must be given with --out" in result.output


BUILDER = """
import sys, time
from pathlib import Path
import ortops.build, ortops.runtime

folder = Path(sys.argv[1])
ortops.build.BUILT = ortops.runtime.BUILT = folder / "built"

def library(*_):
    print("builds", flush=True)
    while not (folder / "go").exists():
        time.sleep(0.01)
    return b"library"

ortops.build._library = library
ortops.build.main([])
"""
"""A process that begins to build, and ends to do so when there is the file `go`."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[str]]]:
    """Starts a `BUILDER`."""
    started = list[subprocess.Popen[str]]()

    def start_one() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILDER, str(tmp_path)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))  # noqa: S603
        return started[-1]

    yield start_one
    for process in started:
        process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_of_two_processes_one_builds_and_the_other_waits_for_it(
    tmp_path: Path, start: Callable[[], subprocess.Popen[str]]
) -> None:
    first = start()
    assert line(first) == "builds"
    second = start()
    assert line(second) == "another process builds the library: waiting for it"
    (tmp_path / "go").touch()
    assert [process.communicate(timeout=60)[0] for process in (first, second)] == ["", ""]
    assert [process.returncode for process in (first, second)] == [0, 0]
    assert len(libraries(tmp_path / "built")) == 1


@posix
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_process_that_is_stopped_leaves_nothing_and_lets_the_next_build(
    tmp_path: Path, start: Callable[[], subprocess.Popen[str]], number: int
) -> None:
    first, second = start(), start()
    said = {line(first), line(second)}
    assert said == {"builds", "another process builds the library: waiting for it"}
    builder, waiting = (first, second) if first.poll() is None and said else (second, first)
    builder.send_signal(number)
    assert libraries(tmp_path / "built") == []
    (tmp_path / "go").touch()
    waiting.communicate(timeout=60)
    builder.communicate(timeout=60)
    assert len(libraries(tmp_path / "built")) == 1


def exports() -> list[objects.Export]:
    return content.exports_of([BY_NAME["MaxRoiPool_1"]], ["float"])


def test_what_was_compiled_before_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first = content.library_with(exports(), this_machine())
    monkeypatch.setattr(objects, "compile_for", None)
    monkeypatch.setattr(content, "in_processes", lambda sources, *_: iter(sources))
    assert content.library_with(exports(), this_machine()) == first


def test_sources_that_change_meanwhile_are_named_and_nothing_of_them_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = objects.Compiled(b"of other sources", [b"", b""])
    monkeypatch.setattr(content, "find", lambda *_: None)
    monkeypatch.setattr(content, "save", None)
    monkeypatch.setattr(content, "in_processes", lambda sources, *_: ((source, compiled) for source in sources))
    digests = iter(["0123456789abcdef", "fedcba9876543210"])
    monkeypatch.setattr(content, "sources_digest", lambda: next(digests))
    with pytest.raises(RuntimeError, match="a source file was changed while the library was built: build it again"):
        content.library_with(exports(), this_machine())


SOURCES = [Source("native.tasks", "work", ""), Source("native.tasks", "never", "")]


def test_an_error_in_a_process_ends_the_others() -> None:
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        list(in_processes(SOURCES, fail_or_wait, 2))
    assert time.monotonic() - began < 60


def fail_or_wait(source: Source) -> float:
    if source is not None and source.function == "work":
        time.sleep(600)
    return 1 / 0


IMPORTS_NUMBA = """
import numba
from ortops.compiler.machine_code import Source
from ortops.library.objects import compile_for
from ortops.library.targets import TARGETS, this_machine
compile_for(TARGETS[this_machine()], Source("native.tasks", "work", ""))
"""


def test_no_code_for_this_processor_passes_for_any_processor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NUMBA_CPU_NAME", "generic")
    command = [sys.executable, "-c", IMPORTS_NUMBA]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert "must be compiled in a process that has not imported numba" in result.stderr


WAITING = """
import os, time
def begin_and_wait(source):
    print(os.getpid(), flush=True)
    time.sleep(600)
"""
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # which what a shell starts in the background ignores
from ortops.library.processes import in_processes
from waiting import begin_and_wait
list(in_processes([1, 2, 3], begin_and_wait, 2))
"""


@posix
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_that_ends_the_process_ends_those_that_compile_for_it(number: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [sys.executable, str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        worker = int(line(process))
        process.send_signal(number)
        try:
            process.communicate(timeout=60)  # which reads until nobody can write any more
        except subprocess.TimeoutExpired:
            os.kill(worker, signal.SIGKILL)
            pytest.fail("a worker lives on")
    assert process.returncode == -number


@posix
@pytest.mark.parametrize("home", ["", "/proc", "{}"])
def test_zig_has_a_cache_whatever_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    for variable in ("XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", home.format(tmp_path))
    monkeypatch.setenv("GIVEN", str(tmp_path / "given") if home != "{}" else "")
    c_compiler.run(
        [sys.executable, "-c", "import os; assert os.environ.get('ZIG_GLOBAL_CACHE_DIR', '') == os.environ['GIVEN']"],
        tmp_path / "given",
    )
