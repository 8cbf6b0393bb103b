"""The strategies that are ready for onnx-tests: our operators answer what they draw as the reference does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import ortops
from examples import onnx_tests_strategies as strategies
from ortops import OPERATORS
from ortops.reference import evaluate


@pytest.mark.parametrize(
    ("strategy", "name"), [(strategies.roi_align, "RoiAlign_16"), (strategies.max_roi_pool, "MaxRoiPool_1")]
)
def test_our_operators_answer_what_is_drawn(strategy: Any, name: str) -> None:
    definition = next(operator for operator in OPERATORS if operator.name == name)
    sizes = []

    @settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        drawn = data.draw(strategy(np.dtype(np.float32), ortops))
        answer = drawn.spox_fun(*drawn.inputs.values(), **drawn.attribute_kwargs)
        (due,) = evaluate(definition, list(drawn.inputs.values()), drawn.attribute_kwargs)
        assert due is not None
        np.testing.assert_allclose(answer, due, rtol=1e-5, atol=1e-4)
        sizes.append(due.size)

    check()
    assert max(sizes) > 0
