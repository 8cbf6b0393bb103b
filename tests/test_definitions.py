"""What the key of machine code depends on: the definitions that a kernel uses, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ortops.compiler import cache, digests

SOURCES = {
    "kernel.py": '''
"""A kernel."""
from numba import types
import ortops.kernels.whole
from ortops.kernels.helpers import twice as double
from ortops.jit import WIDTH, tools
from ortops.kernels.layout import Shape

LIMIT: int = 5
low, high = (lambda a, b: a), (lambda a, b: b)

@compiled
def kernel(shape: Shape, x, scale=2):
    """Compute."""
    y = double(x) + LIMIT  # a comment
    from ortops.kernels.late import last
    return low(y, WIDTH) * scale + last(tools.emit) + ortops.kernels.whole.part

def apart(x):
    return high(x, x)
''',
    "helpers.py": "from ortops.kernels.deep import half\nUNUSED = 1\n"
    "def twice(x): return x + half(x) * 2\ndef thrice(x): return 3\n",
    "deep.py": "FACTOR = 0.5\ndef half(x): return x * FACTOR\n",
    "late.py": "def last(x): return 7",
    "whole.py": "part = 8",
    "layout.py": "class Shape(NamedTuple):\n    '''Sizes.'''\n    rows: int\n    columns: int\n",
    "jit/__init__.py": "WIDTH = 16\n",
    "jit/tools.py": "from numba.extending import intrinsic, register_model\nfrom ortops.jit import models\n"
    "@intrinsic\ndef emit(typing, value):\n    return value, lambda *args: 9\n",
    "jit/models.py": "from numba.extending import register_model\n@register_model(int)\nclass Model:\n    size = 10\n"
    "if size:\n    pass\n",
    "other.py": "from ortops.kernels.kernel import kernel\ndef run(): return kernel(None, 11)",
}


def digest(folder: Path, sources: dict[str, str]) -> str:
    for name, text in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return digests.digests({"kernels": folder, "jit": folder / "jit"})["kernels.kernel.kernel"]


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("kernel.py", "# a comment", "# another one"),
        ("kernel.py", '"""Compute."""', '"""Calculate."""'),
        ("kernel.py", '"""A kernel."""', "\n\n\n"),
        ("kernel.py", "double(x) + LIMIT", "(double(x)\n    + LIMIT)"),
        ("kernel.py", "from numba import types", "from numba import errors"),
        ("kernel.py", "high(x, x)", "high(x, 0)"),
        ("helpers.py", "UNUSED = 1", "UNUSED = 2"),
        ("layout.py", "'''Sizes.'''", "'''Lengths.'''"),
    ],
)
def test_what_a_kernel_does_not_use_does_not_count(tmp_path: Path, file: str, old: str, new: str) -> None:
    assert old in SOURCES[file]
    before = digest(tmp_path, SOURCES)
    assert digest(tmp_path, {file: SOURCES[file].replace(old, new)}) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("kernel.py", "LIMIT: int = 5", "LIMIT: int = 6"),
        ("kernel.py", "scale=2", "scale=3"),
        ("kernel.py", "@compiled", "@inline"),
        ("kernel.py", "lambda a, b: a", "lambda a, b: b"),
        ("kernel.py", "import twice as", "import thrice as"),
        ("helpers.py", "half(x) * 2", "half(x) * 4"),
        ("deep.py", "FACTOR = 0.5", "FACTOR = 0.25"),
        ("whole.py", "8", "9"),
        ("layout.py", "rows: int\n    columns: int", "columns: int\n    rows: int"),
        ("jit/__init__.py", "16", "8"),
        ("jit/tools.py", "9", "10"),
        ("jit/models.py", "10", "20"),
    ],
)
def test_what_a_kernel_uses_counts_however_far_away(tmp_path: Path, file: str, old: str, new: str) -> None:
    assert old in SOURCES[file]
    before = digest(tmp_path, SOURCES)
    assert digest(tmp_path, {file: SOURCES[file].replace(old, new)}) != before


def test_functions_that_call_each_other_have_digests(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text("def f(): g()\ndef g(): f()\n")
    assert len(set(digests.digests({"kernels": tmp_path}).values())) == 1


def test_a_kernel_depends_on_how_it_is_compiled_and_not_on_where_it_is_kept(tmp_path: Path) -> None:
    for name, folder in cache.PACKAGES.items():
        shutil.copytree(folder, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))

    def found(file: str, old: str, new: str) -> str:
        text = (tmp_path / file).read_text("utf-8")
        assert old in text
        (tmp_path / file).write_text(text.replace(old, new))
        packages = {name: tmp_path / name for name in cache.PACKAGES}
        return digests.digests(packages)["native.kernels.gather.gather"]

    before = found("compiler/cache.py", "suppress(OSError)", "suppress(OSError)")
    assert found("compiler/cache.py", "suppress(OSError)", "suppress(ValueError)") == before
    assert found("compiler/compile.py", 'error_model="numpy"', 'error_model="python"') != before
