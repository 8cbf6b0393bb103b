"""The parts of `python -m release` that build nothing, and the version that a release has."""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tarfile
import tomllib
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

import ortops
from ortops.library.targets import TARGETS
from release.__main__ import main
from release.artefacts import library, pack, sums
from release.commands import new_environment, run, step
from release.tries import first_example, run_program

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

posix = pytest.mark.skipif(sys.platform == "win32", reason="releases are built on Linux")


def test_the_version_is_the_same_wherever_it_stands() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert PROJECT["version"] == ortops.__version__ == citation["version"]


def test_the_oldest_releases_in_ci_are_those_that_pyproject_allows() -> None:
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["conformance"], *extras["compile"]]
    bounds = [re.match(r"([\w-]+)>=([\d.]+)", requirement) for requirement in needed]
    lines = (ROOT / ".github/oldest.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert set(pins) == {bound[1] for bound in bounds if bound}
    for bound in bounds:
        assert bound is not None
        assert f"{pins[bound[1]]}.".startswith(f"{bound[2]}."), bound[0]


def test_an_archive_depends_on_names_and_contents_alone(tmp_path: Path) -> None:
    archives = list[bytes]()
    for name in ("first", "second"):
        folder = tmp_path / name / "corpus"
        (folder / "b").mkdir(parents=True)
        for file in ("b/2", "1") if archives else ("1", "b/2"):
            (folder / file).write_text(file)
        os.utime(folder / "1", (len(archives), len(archives)))
        pack(folder, tmp_path / name / "corpus.tar.gz")
        archives.append((tmp_path / name / "corpus.tar.gz").read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "first/corpus.tar.gz") as tar:
        assert tar.getnames() == ["corpus", "corpus/1", "corpus/b", "corpus/b/2"]


def test_sums_are_those_of_sha256sum(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).write_text(name)
    assert sums([tmp_path / "b", tmp_path / "a"]).splitlines() == [
        f"{hashlib.sha256(name.encode()).hexdigest()}  {name}" for name in ("a", "b")
    ]


def test_each_platform_has_a_library_of_its_own() -> None:
    assert len({library(target) for target in TARGETS}) == len(TARGETS)
    assert (library("x86_64-windows"), library("aarch64-macos")) == (
        "ortops-x86_64-windows.dll",
        "libortops-aarch64-macos.dylib",
    )


def test_the_first_example_is_the_first_block_of_python() -> None:
    assert first_example("```console\n$ ls\n```\n```python\na = 1\n```\n```python\nb\n```\n") == "a = 1\n"
    assert "import ortops" in first_example((ROOT / "README.md").read_text("utf-8"))
    with pytest.raises(click.ClickException, match=r"README\.md has no block of Python"):
        first_example("nothing")


@posix
def test_a_program_runs_in_a_new_environment_without_our_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    python = new_environment(tmp_path / "environment")
    run_program(tmp_path, python, f"import sys; assert {str(ROOT)!r} not in sys.path")
    with pytest.raises(click.ClickException, match=r"(?s)program\.py: status 1.*No module named 'ortops'"):
        run_program(tmp_path, python, "import ortops")


@posix
def test_a_program_that_fails_ends_a_release_with_its_words(tmp_path: Path) -> None:
    with pytest.raises(click.ClickException, match=r"(?s)status 3.*why"):
        run(sys.executable, "-c", "print('why'); exit(3)", cwd=tmp_path)


def test_each_step_prints_its_time(capsys: pytest.CaptureFixture[str]) -> None:
    with step("corpus"):
        pass
    assert capsys.readouterr().out == "corpus ...\ncorpus: 0 s\n"


def test_it_writes_into_no_folder_that_exists(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, [str(tmp_path)])
    assert ended.exit_code == 2
    assert "exists already" in ended.output
