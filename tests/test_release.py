# SPDX-License-Identifier: MIT
"""The parts of `python -m release` and of the site that build nothing, and the version that a release has."""

from __future__ import annotations

import hashlib
import importlib
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
from release.site import PROJECT as SITE
from release.site import PUBLIC, ROOT, api_page, with_links
from release.tries import program, run_program

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
        pack(folder, tmp_path / name / "corpus.tar.xz")
        archives.append((tmp_path / name / "corpus.tar.xz").read_bytes())
    assert archives[0] == archives[1]
    with tarfile.open(tmp_path / "first/corpus.tar.xz") as tar:
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


def test_a_program_has_the_blocks_of_python_that_are_no_files() -> None:
    document = "```console\n$ ls\n```\n```python\na = 1\n```\n```python\n# my.py\nc\n```\n```python\nb\n```\n"
    assert program(document) == "a = 1\n\nb\n"
    with pytest.raises(click.ClickException, match=r"README\.md has no block of Python"):
        program("nothing")


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


DOCS, HERE = ROOT / "docs", "https://example.org/a/b"


@pytest.mark.parametrize("module", [name for name in PUBLIC if not name.endswith(".torch")])
def test_the_page_of_public_names_has_each_name(module: str) -> None:
    page = api_page()
    listed = re.findall(r"^::: (\S+)$", page, re.MULTILINE) + re.findall(r"heading: ([\w.]+)", page)
    assert {f"{module}.{name}" for name in importlib.import_module(module).__all__} <= set(listed)


def test_names_that_need_pytorch_are_on_the_page_without_it() -> None:
    assert "::: ortops.torch.patch_torchvision\n" in api_page()
    assert "::: onnx_models.torch.export\n" in api_page()


def test_a_function_with_the_name_of_its_module_is_not_taken_for_the_module() -> None:
    page, options = api_page(), "    options: {heading: onnx_models.NAME, toc_label: NAME}"
    for path in ("gradient.gradient", "convert.convert"):
        assert f"::: onnx_models.{path}\n{options.replace('NAME', path.rpartition('.')[2])}\n" in page


def test_each_document_is_in_the_navigation_once() -> None:
    listed = re.findall(r"'([\w/]+\.md)'", str(SITE["nav"]))
    documents = [path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *DOCS.glob("*.md"))]
    assert sorted(listed) == sorted([*documents, "api.md"])


@pytest.mark.parametrize(
    ("folder", "text", "expected"),
    [
        (ROOT, "[a](docs/design.md#x)", None),
        (DOCS, "[a](../SECURITY.md)", None),
        (DOCS, "[a](#x) [b](https://c.d/e)", None),
        (DOCS, "[a](no_such_file.md)", None),
        (DOCS, "![a](images/speed.svg)", None),
        (DOCS, "```\n[a](../examples/fit_box.py)\n```\n", None),
        (DOCS, "[`a[0]`](../examples/fit_box.py)", f"[`a[0]`]({HERE}/blob/main/examples/fit_box.py)"),
        (
            DOCS,
            '<picture>\n  <source media="m" srcset="b.svg">\n  <img src="a.svg" width="8">\n</picture>',
            '<img src="b.svg#only-dark" width="8"><img src="a.svg#only-light" width="8">',
        ),
    ],
)
def test_a_link_to_a_source_leads_to_the_repository_and_a_picture_follows_the_theme(
    folder: Path, text: str, expected: str | None
) -> None:
    assert with_links(text, folder, HERE) == (expected or text)


def test_without_an_address_of_the_repository_a_link_to_a_source_is_plain_words() -> None:
    assert with_links("See [the *loss*](../examples/fit_box.py).", DOCS, "") == "See the *loss*."
