"""Asking the runtimes of other virtual environments, by their own Python and with what is installed there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

from conformance import venv as suite_venv
from conformance.report.record import read
from suite_runs import INSIDE, run, stored, words

MODULE = """
import os, sys
from conformance.expected_values import reference
from ortops.operators import BY_NAME

EXPECTED_FAILURES = {"*": "none of them counts elsewhere"}


def answer(op_type, inputs, attributes, outputs):
    assert sys.prefix == os.environ["WANTED"], sys.prefix
    assert "pytest" not in sys.modules
    answers = reference(BY_NAME["RoiAlign_16"], attributes, inputs, outputs)
    return {name: y.astype(inputs["X"].dtype) + 1 for name, y in answers.items()}
"""


def made(folder: Path) -> Path:
    """An environment that has nothing, and where its packages would lie."""
    venv.create(folder, with_pip=False)
    return next(folder.glob("lib/python*/site-packages"), folder / "Lib/site-packages")


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with a module of its own and with what this one has."""
    folder = tmp_path_factory.mktemp("other") / "env"
    packages = made(folder)
    (packages / "this.pth").write_text(sysconfig.get_paths()["purelib"], "utf-8")
    (packages / "lies_here.py").write_text(MODULE, "utf-8")
    return folder


def test_its_own_python_answers_and_no_failure_is_expected(
    other: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANTED", str(other))
    file = tmp_path / "m.md"
    done = run("matrix", "--installed-in", str(other), "lies_here:answer", "--select", INSIDE, "--markdown", str(file))
    assert done.exit_code == 0, done.output
    assert "| roi_align/edge | 0/1, 1 failed |" in file.read_text("utf-8")


def test_a_release_that_is_named_twice_is_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = stored(tmp_path / "r.json", "reference", {INSIDE: "passed"}, version="9.9")
    monkeypatch.setattr(suite_venv, "run_suite", lambda *_: read(file))
    done = run("matrix", str(file), "--installed-in", str(tmp_path), "reference", "--select", INSIDE)
    assert done.exit_code == 2
    assert "backend reference 9.9: must be named once" in done.output


def test_what_an_environment_lacks_is_named(tmp_path: Path) -> None:
    made(tmp_path / "env")
    done = run("matrix", "--installed-in", str(tmp_path / "env"), "reference", "--select", INSIDE)
    assert done.exit_code == 2
    assert f"lacks {', '.join(suite_venv.REQUIRED)}" in words(done).replace(", tomli", "")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "must be the folder of a virtual environment"),
        ("echo 3 8", "has Python 3.8: must be 3.10 or later"),
        ("echo '\033[2J broken' >&2; exit 3", r"its Python does not run: \\x1b\[2J broken"),
        ("exit 3", "its Python does not run: it ended with status 3 and no output"),
    ],
)
@pytest.mark.skipif(os.name == "nt", reason="the scripts are a shell's")
def test_what_is_no_environment_is_refused(tmp_path: Path, script: str | None, message: str) -> None:
    if script is not None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin/python").write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (tmp_path / "bin/python").chmod(0o755)
    with pytest.raises(suite_venv.OtherEnvironmentError, match=message):
        suite_venv.run_suite(tmp_path, "reference", INSIDE)


def test_what_the_suite_needs_is_what_it_imports() -> None:
    """Nothing but `REQUIRED` is imported on the way to asking a backend, and no compiler."""
    code = (
        "import json, sys, conformance.__main__, conformance.backends.reference; print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    modules = {name.partition(".")[0] for name in json.loads(done.stdout)}
    lent = {*suite_venv.SHARED, *suite_venv.REQUIRED}
    distributed = {name for name in modules - sys.stdlib_module_names - lent if not name.startswith("_")}
    their_own = {"google", "markdown_it", "markupsafe", "mdurl", "pygments", "typing_extensions", "tomli", "colorama"}
    assert distributed <= their_own
