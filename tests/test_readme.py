"""The README says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # of PyTorch 2.13's own pytrees
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_its_python_runs(block: str) -> None:
    if "import torch" in block:
        pytest.importorskip("torch")
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102
