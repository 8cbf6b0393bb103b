# SPDX-License-Identifier: MIT
"""Compiled code on disk: when it is used, when it is compiled again, which folders are trusted."""

from __future__ import annotations

import errno
import importlib.metadata
import os
import pwd
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal
from unittest.mock import Mock

import pytest

from ortops.compiler import cache, machine_code
from processes import python

if os.name == "nt":
    pytest.skip("folders have other owners and rights on Windows", allow_module_level=True)


class Package:
    """A package with a compiler and one function, whose "compiled code" is its text and its element type."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "source"
        for file in ("kernels/tiny.py", "custom/code.py"):
            (self.path / file).parent.mkdir(parents=True)
            (self.path / file).write_text("")

    def compilations(self, element: str = "float") -> int:
        """The number of functions that a new process compiles to load the function for an element type."""
        forget()
        code = f"{(self.path / 'kernels' / 'tiny.py').read_text()} {element}".encode()
        stored = cache.find("kernels.tiny.f", (element,))
        if stored is None:
            cache.save("kernels.tiny.f", (element,), code)
            return 1
        assert stored == code
        return 0


def forget() -> None:
    """Forget what a process knows, as a new one does."""
    for known in (cache._sources, cache._compiler):  # noqa: SLF001
        known.cache_clear()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Package]:
    """A package whose code can only be stored in folders below tmp_path."""
    package = Package(tmp_path)
    monkeypatch.setattr(cache, "ROOT", package.path)
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path / "shared"))
    (tmp_path / "shared").mkdir()
    yield package
    monkeypatch.undo()
    forget()


def files(folder: Path) -> list[Path]:
    """The files with machine code, if they may hold any."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".py")


def shut(folder: Path) -> None:
    """Put a file in a folder's place, so that not even root can write below it."""
    folder.rmdir() if folder.exists() else None
    folder.write_bytes(b"")


def test_clones_share_code_of_each_version_of_the_sources(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elements, source = ["", "float"], package.path / "kernels" / "tiny.py"
    for text in ("def f(x): return 2 * x", "def f(x): return 3 * x"):
        source.write_text(text)
        assert [package.compilations(element) for element in elements * 2] == [1, 1, 0, 0]
    shutil.copytree(package.path, tmp_path / "clone")
    monkeypatch.setattr(cache, "ROOT", tmp_path / "clone")
    assert package.compilations() == 0
    assert [file.parent for file in files(tmp_path)] == [tmp_path / "user" / "ortops" / "compiled"] * 4


SOURCES = {
    "kernels/tiny.py": "from ortops.kernels.helpers import (\n    twice,\n)\ndef f(x):\n    import ortops.late\n",
    "kernels/helpers.py": "from ortops.kernels import deep as other\nfrom ortops.kernels import tiny\n",
    "kernels/deep.py": "from ortops.jit import WIDTH",
    "jit/__init__.py": "WIDTH = 16",
    "late.py": "",
    "kernels/apart.py": "import ortops.kernels.tiny",
}


@pytest.mark.parametrize("file", SOURCES)
def test_a_digest_covers_what_a_module_imports_however_far(package: Package, file: str) -> None:
    for name, text in SOURCES.items():
        (package.path / name).parent.mkdir(exist_ok=True)
        (package.path / name).write_text(text)
    before = cache.digest_of("kernels.tiny")
    (package.path / file).write_text(SOURCES[file] + "\n")
    assert (cache.digest_of("kernels.tiny") == before) == (file == "kernels/apart.py")


def other_version(package: str) -> Callable[[pytest.MonkeyPatch], None]:
    version = importlib.metadata.version
    return lambda patch: patch.setattr(
        importlib.metadata, "version", lambda name: "0.1" if name == package else version(name)
    )


def other_processor(part: int) -> Callable[[pytest.MonkeyPatch], None]:
    mine = machine_code.processor()
    return lambda patch: patch.setattr(machine_code, "processor", lambda: (*mine[:part], "another", *mine[part + 1 :]))


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    **{package: other_version(package) for package in ("numba", "llvmlite")},
    **{name: other_processor(part) for part, name in enumerate(("triple", "name", "features"))},
    "NUMBA_OPT": lambda patch: patch.setenv("NUMBA_OPT", "0"),
    "NUMBA_CPU_NAME": lambda patch: patch.setenv("NUMBA_CPU_NAME", "generic"),
    "NUMBA_CPU_FEATURES": lambda patch: patch.setenv("NUMBA_CPU_FEATURES", "+avx,-fma"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_code_of_another_compiler_or_for_another_processor_is_kept_beside(
    package: Package, tmp_path: Path, change: str
) -> None:
    assert package.compilations() == 1
    with pytest.MonkeyPatch.context() as patch:
        CHANGES[change](patch)
        assert package.compilations() == 1
        assert package.compilations() == 0
    assert package.compilations() == 0
    assert len(files(tmp_path)) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda content, _: content[:-1],
        lambda content, _: content[:-1] + bytes([content[-1] ^ 1]),
        lambda _, other: other,
    ],
    ids=["a byte less", "one bit", "of another element type"],
)
def test_a_damaged_file_is_compiled_anew_and_mended(
    package: Package, tmp_path: Path, damage: Callable[[bytes, bytes], bytes]
) -> None:
    assert package.compilations() == 1
    (path,) = files(tmp_path)
    assert package.compilations("double") == 1
    (other,) = {*files(tmp_path)} - {path}
    path.write_bytes(damage(path.read_bytes(), other.read_bytes()))
    assert package.compilations() == 1
    assert package.compilations() == 0


def test_without_a_home_the_code_goes_to_a_private_folder_for_temporary_files(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", Mock(side_effect=KeyError))
    monkeypatch.chdir(tmp_path)
    assert package.compilations() == 1
    assert package.compilations() == 0
    assert len(files(tmp_path / "shared" / f"ortops-{os.geteuid()}")) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["shared", "source"]


def test_where_no_folder_can_be_written_each_process_compiles(package: Package, tmp_path: Path) -> None:
    for folder in (tmp_path / "user", tmp_path / "shared"):
        shut(folder)
    assert package.compilations() == 1
    assert package.compilations() == 1


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Whatever the process makes has all rights that it asks for."""
    umask = os.umask(0)
    yield
    os.umask(umask)


@pytest.fixture(params=["named", "user", "temporary"])
def kept(
    request: pytest.FixtureRequest,
    package: Package,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_umask: None,  # noqa: ARG001 - the widest rights that a process can make files with
) -> Path:
    """The file with the package's code, in the only folder that can be used."""
    if request.param == "named":
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "home" / "named"))
    if request.param == "user":
        shut(tmp_path / "shared")
    if request.param == "temporary":
        shut(tmp_path / "user")
    assert package.compilations() == 1
    assert package.compilations() == 0
    return next(path for path in files(tmp_path) if path.suffix == ".o")


def test_what_is_made_nobody_else_can_write_to_whatever_the_umask(kept: Path, tmp_path: Path) -> None:
    is_private = tmp_path / "home" not in kept.parents
    assert kept.stat().st_mode & 0o777 == (0o600 if is_private else 0o644)
    assert {path.stat().st_mode & 0o777 for path in kept.parents[:2]} == {0o700 if is_private else 0o755}


def replace_by_link(path: Path) -> None:
    path.symlink_to(path.rename(path.with_name("elsewhere")))


ATTACKS: dict[str, Callable[[Path], object]] = {
    "mode 702": lambda path: path.chmod(0o702),
    "mode 720": lambda path: path.chmod(0o720),
    "mode 777": lambda path: path.chmod(0o777),
    "link": replace_by_link,
    "owner": lambda path: os.chown(path, os.geteuid() + 1, -1),
}


@pytest.mark.filterwarnings("ignore:NUMBA_CACHE_DIR:UserWarning")
@pytest.mark.parametrize("depth", range(3), ids=["file", "folder", "folder around"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_code_that_others_may_have_written_is_not_read(package: Package, kept: Path, attack: str, depth: int) -> None:
    path = [kept, *kept.parents][depth]
    if attack == "owner" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    ATTACKS[attack](path)
    before = files(path if path.is_dir() else path.parent)
    assert package.compilations() == 1
    if depth:
        assert files(path) == before


@pytest.mark.filterwarnings("ignore:NUMBA_CACHE_DIR:UserWarning")
def test_nothing_is_made_where_others_could_replace_it(package: Package, kept: Path, tmp_path: Path) -> None:
    around = kept.parents[2]
    if around == tmp_path:
        pytest.skip("has the sources, too")
    shutil.rmtree(kept.parents[1])
    around.chmod(0o777)
    assert package.compilations() == 1
    assert list(around.iterdir()) == []
    around.chmod(0o1777)  # as that of /tmp
    assert package.compilations() == 1
    assert package.compilations() == 0


def test_the_group_of_the_sources_may_write_code(package: Package, kept: Path) -> None:
    for path in {kept, *kept.parents[:2], package.path}:
        path.chmod(path.stat().st_mode | 0o20)
    assert package.compilations() == 0


def test_a_named_folder_that_is_refused_is_named_with_the_rule(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "named").mkdir()
    (tmp_path / "named").chmod(0o777)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    with pytest.warns(
        UserWarning, match=r"NUMBA_CACHE_DIR = '.*named': must be a folder, no link, of this user or root"
    ):
        assert package.compilations() == 1


@pytest.mark.parametrize("on_error", ["default", "error"])
def test_a_full_disk_is_named_and_stops_nothing(
    package: Package,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    recwarn: pytest.WarningsRecorder,
    on_error: Literal["default", "error"],
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "named"))
    monkeypatch.setattr(Path, "replace", Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
    warnings.simplefilter(on_error)
    assert [package.compilations(), package.compilations()] == [1, 1]
    messages = caplog.messages if on_error == "error" else [str(warning.message) for warning in recwarn.list]
    assert messages == [f"NUMBA_CACHE_DIR = '{tmp_path}/named': No space left on device; compiled code is not kept"]
    assert files(tmp_path / "named") == []


def test_parts_that_processes_left_behind_are_removed(package: Package, tmp_path: Path) -> None:
    assert package.compilations() == 1
    (kept,) = files(tmp_path)
    stale, young, other = (kept.with_name(f".{name}") for name in (f"{'0f' * 16}.part", f"{'a1' * 16}.part", "part"))
    for path in (stale, young, other):
        path.write_bytes(b"part of")
    for path in (stale, other, kept):
        os.utime(path, (0, 0))
    cache.remove_unused()
    assert files(tmp_path) == sorted([young, other, kept]), "another process may still write the young one"


def names(folder: Path) -> list[str]:
    return sorted(path.name.split("-")[0] for path in files(folder))


def stored(folder: Path, name: str, used: int, kind: str = "int64") -> None:
    """Store code as if it were last used at a time."""
    before = {*files(folder)}
    cache.save(name, (kind,), b"code")
    (file,) = {*files(folder)} - before
    os.utime(file, (used, used))


def test_of_a_users_function_the_versions_used_last_are_kept_with_all_their_types(
    package: Package, tmp_path: Path
) -> None:
    assert package.compilations() == 1
    stored(tmp_path, "user.other.v0", 0)
    for version in range(cache.MAX_VERSIONS):
        for kind in ("int64", "float64"):
            stored(tmp_path, f"user.mine.v{version}", version, kind)
    assert cache.find("user.mine.v0", ("int64",)) == b"code"
    cache.save("user.mine.new", ("int64",), b"code")
    cache.remove_unused()
    last = [f"user.mine.v{version}" for version in range(2, cache.MAX_VERSIONS)] * 2
    assert names(tmp_path) == sorted(
        ["kernels.tiny.f", "user.other.v0", "user.mine.new", "user.mine.v0", "user.mine.v0", *last]
    )


def test_beyond_the_bound_of_a_folder_the_code_used_longest_ago_goes(
    package: Package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package.compilations() == 1
    for used in range(4):
        stored(tmp_path, f"kernels.tiny.f{used}", used)
    assert cache.find("kernels.tiny.f0", ("int64",)) == b"code"
    bound = sum(path.stat().st_size for path in files(tmp_path)) - 1
    files(tmp_path)[0].with_name("other").write_bytes(bytes(bound))
    monkeypatch.setattr(cache, "MAX_BYTES", bound)
    stored(tmp_path, "kernels.tiny.new", 9)
    cache.remove_unused()
    assert names(tmp_path) == [*(f"kernels.tiny.{name}" for name in ("f", "f0", "f3", "new")), "other"]


def test_processes_that_fill_an_empty_folder_at_once_do_not_mix_their_code(tmp_path: Path) -> None:
    code = """
import hashlib
from ortops.compiler import cache
for k in range(20):
    kinds, code = (str(k),), hashlib.sha256(f"f {k}".encode()).digest() * 10_000
    assert cache.find("native.tasks.f", kinds) in (None, code)
    cache.save("native.tasks.f", kinds, code)
    assert cache.find("native.tasks.f", kinds) == code
"""
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: python(code, NUMBA_CACHE_DIR=str(tmp_path / "named")), range(2)))
    assert len(files(tmp_path)) == 20


def test_code_for_libraries_does_not_depend_on_options_of_this_process(
    package: Package, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package.compilations() == 1
    target = "aarch64-unknown-linux-gnu", "generic"
    cache.save("kernels.tiny.f", ("int64",), b"code", target)
    monkeypatch.setenv("NUMBA_OPT", "0")
    assert cache.find("kernels.tiny.f", ("int64",), target) == b"code"
    assert cache.find("kernels.tiny.f", ("int64",), cache.BITCODE) is None
