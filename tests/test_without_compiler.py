# SPDX-License-Identifier: MIT
"""Processes in which numba and llvmlite cannot be imported, and what imports them elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from processes import python

ROOT = Path(__file__).parents[1]


@pytest.fixture
def missing(tmp_path: Path) -> str:
    """The folder of a module that Python imports first in each process, and in its children."""
    tmp_path.joinpath("sitecustomize.py").write_text("import sys; sys.modules |= {'numba': None, 'llvmlite': None}")
    return str(tmp_path)


def test_all_that_compiles_nothing_works_without_a_compiler(missing: str) -> None:
    assert python(Path(__file__).with_name("without_compiler.py"), PYTHONPATH=missing) == "all works"


def test_the_suite_needs_no_compiler(missing: str) -> None:
    arguments = ["--select", "roi_align/edge/*", "--at-least", "100", "--jobs", "1"]
    code = "import sys; from conformance.__main__ import main; main(sys.argv[1:])"
    assert "0 failed" in python(code, *arguments, cwd=ROOT, PYTHONPATH=missing)


def test_sessions_and_functions_import_no_compiler() -> None:
    code = """
import sys
import numpy as np
import onnx_models, ortops
of, size = np.zeros(1, np.int64), {"output_height": 1, "output_width": 1}
feeds = {"X": np.ones((1, 1, 4, 4), np.float32), "rois": np.float32([[0, 0, 3, 3]]), "batch_indices": of}
for standard in (False, True):
    model = onnx_models.roi_align(16, standard=standard, **size).SerializeToString()
    print(ortops.InferenceSession(model).run(None, feeds)[0].item(), ortops.roi_align(*feeds.values(), **size).item())
print({"numba", "llvmlite"} & set(sys.modules))
"""
    assert python(code).splitlines() == ["1.0 1.0", "1.0 1.0", "set()"]
