"""What each part needs: commands of the suite ask for the extra that they lack, and nothing else is affected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

WITHOUT = """
import runpy
import sys


class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Missing())
sys.argv = {arguments!r}
runpy.run_module({module!r}, run_name="__main__", alter_sys=True)
"""

EXTRA = ("jinja2", "rich", "tomli")


def run(folder: Path, missing: tuple[str, ...], module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`python -m module` where some packages are not installed."""
    (folder / "conftest.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n", "utf-8")
    code = WITHOUT.format(missing=missing, module=module, arguments=[module, *arguments])
    command = [sys.executable, "-W", "error", "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)  # noqa: S603


@pytest.mark.parametrize("missing", ["hypothesis", "rich"])
def test_the_commands_of_the_suite_name_the_extra(tmp_path: Path, missing: str) -> None:
    done = run(tmp_path, (missing,), "conformance", "--list")
    assert (done.returncode, done.stdout) == (2, "")
    words = f"No module named {missing!r}: python -m conformance needs the extra: pip install 'ortops[conformance]'\n"
    assert done.stderr == words


def test_other_commands_do_without_the_extra(tmp_path: Path) -> None:
    done = run(tmp_path, EXTRA, "onnx_models", "rules")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ai.onnx.contrib  RoiAlign_22" in done.stdout


def test_the_plugin_does_without_the_extra(tmp_path: Path) -> None:
    case = "roi_align/edge/half_pixel_inside/v16/float"
    options = ("--conformance-backend", "reference", "--conformance-select", case)
    done = run(tmp_path, ("jinja2", "rich"), "pytest", "-q", "--pyargs", "conformance", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_plugin_leaves_other_tests_alone(tmp_path: Path) -> None:
    (tmp_path / "test_own.py").write_text("def test_own():\n    pass\n", "utf-8")
    done = run(tmp_path, (*EXTRA, "click", "numpy", "onnx", "ortops"), "pytest", "-q", "test_own.py")
    assert (done.returncode, done.stdout.split()[-4:-2]) == (0, ["1", "passed"]), done.stdout + done.stderr
