# SPDX-License-Identifier: MIT
"""The corpus is frozen: the same bytes on every machine, for as long as an id exists.

`python tests/test_corpus.py` writes corpus.json, the digests of the core's cases. An id of a release keeps its meaning, so a
case that has to change gets another id.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from conformance import export
from conformance.case import Case
from conformance.cases import collect
from processes import python

FILE = Path(__file__).with_name("corpus.json")

CORE = [case for case in collect() if case.id in export.core()]

EMULATED = """
import sys
try:
    from numpy._core._multiarray_umath import __cpu_dispatch__
except ImportError:
    from numpy.core._multiarray_umath import __cpu_dispatch__
print(*__cpu_dispatch__)
"""
"""Prints the instructions beyond those that every x86-64 or ARM processor has, for which NumPy has functions of its own."""


def digests_of(cases: Iterable[Case]) -> dict[str, str]:
    """The first digits of the digest of each case's files, by id."""
    with tempfile.TemporaryDirectory() as folder:
        export.write_corpus(cases, Path(folder), "core")
        rows = json.loads((Path(folder) / "index.json").read_text("utf-8"))["cases"]
    return {row["id"]: row["sha256"][:16] for row in rows}


def stored() -> dict[str, str]:
    return dict(json.loads(FILE.read_text("utf-8")))


# A part at each commit; CI runs it with the oldest and the newest releases of NumPy and onnx, and on other processors.
@pytest.mark.parametrize("step", [23, pytest.param(1, marks=pytest.mark.weekly)])
def test_the_core_has_the_bytes_that_are_stored(step: int) -> None:
    digests = digests_of(CORE[::step])
    changed = {case_id for case_id, digest in digests.items() if stored().get(case_id) != digest}
    assert not changed, "if a case has to change, give it another id; then `make frozen`, and a line in CHANGELOG.md"
    assert step > 1 or stored().keys() == digests.keys()


def test_an_older_processor_writes_the_same_bytes() -> None:
    part = "import json, test_corpus as t; print(json.dumps(t.digests_of(t.CORE[::40])))"
    old: dict[str, Any] = {"NPY_DISABLE_CPU_FEATURES": python(EMULATED), "OPENBLAS_CORETYPE": "Nehalem"}
    digests = json.loads(python(part, PYTHONPATH=str(FILE.parent), **old))
    assert len(digests) > 10
    assert digests == {case_id: stored()[case_id] for case_id in digests}


if __name__ == "__main__":
    FILE.write_text(json.dumps(digests_of(CORE), indent=0) + "\n", "utf-8", newline="\n")
