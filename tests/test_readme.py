"""The README says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ortops.operators import OPERATORS

README = (Path(__file__).parent.parent / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning")  # of PyTorch 2.13's own pytrees
@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_its_python_runs(block: str) -> None:
    if "import torch" in block:
        pytest.importorskip("torch")
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_its_table_has_every_operator_as_defined(operator: object) -> None:
    definition = next(o for o in OPERATORS if o is operator)

    def names(tensors: object) -> str:
        return ", ".join(t.name + "?" * t.optional for t in tensors)  # type: ignore[attr-defined]

    row = " | ".join(
        (
            definition.name,
            names(definition.inputs),
            names(definition.outputs),
            ", ".join(a.name for a in definition.attributes),
            ", ".join(definition.types[definition.inputs[0].type]),
        )
    )
    assert f"| {row} |" in README
