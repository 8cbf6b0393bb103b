"""A small case of any operator, for tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.case import Case, Source
from ortops.operators import BY_NAME


def small_case(operator: str, outputs: tuple[str, ...] | None, attributes: dict[str, Any], *inputs: Any) -> Case:
    """A case with inputs in the operator's order, None to leave one out; without `outputs`, its first one is wanted."""
    definition = BY_NAME[operator]
    tensors = {t.name: np.asarray(a) for t, a in zip(definition.inputs, inputs, strict=False) if a is not None}
    wanted = outputs or (definition.outputs[0].name,)
    return Case("a/small/case", Source("a test", "1", "none"), operator, attributes, tensors, wanted, "a test")
